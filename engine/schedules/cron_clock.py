"""How the readings of a local clock become instants, across every change of offset.

A `Clock` cuts time into pieces of constant offset and says, for each, which readings fire in it.
Between two changes all policies agree: ``instant = reading - offset``. They differ only in
readings that a clock skips (gap) or shows twice (fold); DESIGN §5, points 5 to 7:

* *wildcard* schedules fire at every real reading: gap ``skip``, fold ``both``;
* *fixed-time* schedules follow a clock that never goes back, M(u) = max over v <= u of the local
  reading at v, and fire when M first reaches a named reading: gap ``shift``, fold ``first``.

Pieces are disjoint in UTC and ascending, so whatever walks them forwards or backwards walks one
set. That is why ``next`` and ``previous`` cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from engine.errors import ScheduleError
from engine.schedules.cron_readings import NEVER

if TYPE_CHECKING:
    from engine.schedules.zones import Zone

Gap = Literal["shift", "skip"]
Fold = Literal["first", "last", "both"]


@dataclass(frozen=True, slots=True)
class Dst:
    """What a fixed-time schedule does when its local time is skipped or repeated.

    Attributes:
        gap: ``shift`` fires at the first instant after the gap, ``skip`` not at all.
        fold: ``first``, ``last`` or ``both`` of the two instants.
    """

    gap: Gap = "shift"
    fold: Fold = "first"


STANDARD: Final = Dst()
EVERY_READING: Final = Dst(gap="skip", fold="both")


def dst_policy(dst: str | Mapping[str, Any] | Dst) -> Dst:
    """Return the policy that ``dst`` means; an absent key of a mapping is the standard's.

    Raises:
        ScheduleError: It is neither ``standard`` nor a mapping of ``gap`` and ``fold``.
    """
    if dst == "standard":
        return STANDARD
    if not isinstance(dst, (Mapping, Dst)):
        raise _wrong(repr(dst))
    given = asdict(dst) if isinstance(dst, Dst) else dict(dst)
    complete = {"gap": "shift", "fold": "first"} | given
    if (
        complete.keys() != {"gap", "fold"}
        or complete["gap"] not in get_args(Gap)
        or complete["fold"] not in get_args(Fold)
    ):
        shown = ", ".join(f"{name}: {value}" for name, value in given.items())
        raise _wrong(f"{{{shown[:_SHOWN]}}}")
    return Dst(**complete)


_SHOWN: Final = 60
"""Characters of a policy in a message."""


def _wrong(shown: str) -> ScheduleError:
    return ScheduleError(
        f"dst {shown} is not a policy",
        cure="write standard, or {gap: shift | skip, fold: first | last | both}",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """One zone under one policy, as parallel tables; piece ``i`` starts at ``starts[i]``.

    In piece ``i`` the readings ``lows[i] <= r < highs[i]`` fire at ``r - offsets[i]``, and
    the skipped readings ``gaps[i] <= r < lows[i]`` (often none) fire together at ``starts[i]``.
    Everything is in seconds; ``gaps``, ``lows`` and ``highs`` are on the local axis.
    """

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    gaps: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]


@cache
def clock(rules: Zone, policy: Dst) -> Clock:
    """Return the clock of the zone ``rules`` under ``policy``."""
    # before[i]: the reading at which piece i - 1 ends; after[i]: the one at which i begins.
    after = [start + offset for start, offset in zip(rules.starts, rules.offsets, strict=True)]
    ends = [start + old for start, old in zip(rules.starts[1:], rules.offsets, strict=False)]
    before = [after[0], *ends]
    if policy.fold == "last":
        # A clock that waits: a reading belongs to the last piece that shows it.
        turns = [min(pair) for pair in zip(before, after, strict=True)]
        bounds = list(accumulate(reversed(turns), min))[::-1]
        highs = [*bounds[1:], NEVER]
        lows = [min(pair) for pair in zip(after, highs, strict=True)]
    else:
        bounds = list(rules.reached)
        highs = [*ends, NEVER]
        lows = [max(pair) for pair in zip(after, bounds, strict=True)]
        if policy.fold == "both":
            lows = after
    gaps = [min(pair) for pair in zip(bounds, lows, strict=True)]
    if policy.gap == "skip":
        gaps = lows
    return Clock(rules.starts, rules.offsets, tuple(gaps), tuple(lows), tuple(highs))
