"""Telemetry: instruments, their export, and the health of a worker."""
