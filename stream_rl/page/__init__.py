"""The live page of a run: a loopback web server that reads the run directory and asks the orchestrator like `status`.

consumes: HTTP requests. waits for: nothing. produces: JSON and static files. unblocked by: a request.
"""
