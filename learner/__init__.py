"""The DeepSpeed learner: batches, advantages, losses, checkpoints, publishing."""
