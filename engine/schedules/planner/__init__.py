"""Planner: decisions on due windows. Pure."""
