"""Loader of schedule files: text to schedules and located problems."""
