"""Descriptions of schedules in plain English."""
