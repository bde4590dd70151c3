"""How far a run is, as a line for people."""

from __future__ import annotations


def progress_line(done: float, total: float | None, note: str) -> str:
    """Return for example ``420 of 1,000 (42 %): sending mails``."""
    line = f"{done:,}"
    if total is not None:
        line += f" of {total:,}"
        if total > 0:
            # Rounded down: 100 % is said when all of it is done, and not before.
            line += f" ({int(100 * done / total)} %)"
    return f"{line}: {note}" if note else line
