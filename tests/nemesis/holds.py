"""The times in which a key surely rested: what the operator's log says of pauses and removals."""

from __future__ import annotations

from datetime import datetime

from tests.nemesis.account import Account, Verb

Span = tuple[datetime, datetime]


def _end(account: Account, begin: datetime, ends: list[Verb]) -> datetime:
    """When the first of these may have taken effect, of those that were not over by ``begin``."""
    later = [verb.sent for verb in ends if verb.over >= begin]
    return min([*later, account.ended_at])


def pauses(account: Account, key: str) -> list[Span]:
    """Spans in which the key was paused, whoever's clock one asks."""
    spans = []
    ends = [verb for verb in account.verbs if verb.verb in {"resume", "pause"} and verb.key == key]
    for verb in account.asked("pause", key=key):
        others = [each for each in ends if each is not verb and each.outcome != "refused"]
        begin, end = verb.over, _end(account, verb.sent, others)
        if until := verb.given.get("until"):
            end = min(end, datetime.fromisoformat(until))
        spans.append((begin, end))
    return [(begin, end) for begin, end in spans if begin < end]


def retirements(account: Account, key: str) -> list[Span]:
    """Spans in which the key was retired."""
    applies = [verb for verb in account.verbs if verb.verb == "apply" and verb.outcome != "refused"]
    back = [verb for verb in applies if key in verb.given["whens"]]
    begins = [verb.over for verb in account.asked("prune") if key in verb.answer["retired"]]
    begins += [verb.over for verb in account.asked("cancel", key=key) if verb.answer["retired"]]
    spans = [(begin, _end(account, begin, back)) for begin in begins]
    return [(begin, end) for begin, end in spans if begin < end]


def is_in(spans: list[Span], moment: datetime | None) -> bool:
    return moment is not None and any(begin < moment < end for begin, end in spans)
