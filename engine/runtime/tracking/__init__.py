"""Tracking of runs: closes, lost runs, stuck runs."""
