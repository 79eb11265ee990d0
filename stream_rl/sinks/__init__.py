"""Where a run's numbers go besides its own files: TensorBoard, Weights & Biases, trackio, Prometheus.

A sink runs in the supervisor's process, in a thread of its own. It can be slow, fail or hang; the run does not notice.
"""
