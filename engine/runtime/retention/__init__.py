"""Retention: old rows merged, archived and removed."""
