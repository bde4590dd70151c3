"""Where steps note what they did; apart, since the fleet must not import the application."""

from __future__ import annotations

NOTES = "NEMESIS_NOTES"
"""Names the folder of the notes in the environment of a worker."""
