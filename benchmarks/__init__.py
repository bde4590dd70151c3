"""Measurements, each as a ratio against a named rival in the same run."""
