"""Queues of steps on a worker."""
