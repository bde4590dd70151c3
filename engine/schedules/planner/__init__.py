"""Planner: the decision on every due window. Pure."""
