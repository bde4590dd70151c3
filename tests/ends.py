"""The end of a run in the ledger, as the tracker records it: of a bad one the reason later."""

from __future__ import annotations

from dataclasses import replace

from engine.ledger import ENDED_BADLY, UNREAD, Evidence, Ledger


async def record_end(ledger: Ledger, end: Evidence) -> list[str]:
    """Record an end with its reason; return the ids of the fires that it changed."""
    if end.closed not in ENDED_BADLY:
        return await ledger.record_evidence([end])
    unread = replace(end, error=UNREAD, failure=None, not_undone=None, counts=None, unread=True)
    changed = await ledger.record_evidence([unread])
    await ledger.note_failures([end])
    return changed
