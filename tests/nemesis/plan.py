"""The plan of a run: which faults and which verbs come when, all of it drawn from one seed.

The same seed gives the same plan. What becomes of it differs from run to run, because processes,
servers and links take the time they take.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.nemesis.schedules import CHAINS, EDITED, ENDLESS, REMOVED

WORKERS = 3
BEGIN = 8.0
"""Seconds in which nothing happens, so that there is something to lose."""

KEYS = (
    "plain", "fails", "retries", "children", "continues", "continues-memo", "skips", "skips-three",
    "queue", "queue-three", "queue-one", "cancels", "cancels-endless", "terminates", "cron",
    "excluded", "catch-all", "catch-none", "catch-latest", "report", "other", "on-success",
    "on-failure", "always", "both", "steps",
)  # fmt: skip
_STRICT = ("skips", "queue", "queue-one", "skips-three", "queue-three", "continues-memo")
_FAILING = ("fails", "retries", "report")


@dataclass(frozen=True)
class Act:
    """One fault or verb: ``at`` seconds after the begin, for ``seconds`` where it lasts.

    ``given`` holds what was drawn; numbers from 0 to 1 choose among what there is at the time.
    """

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    given: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(seed: int, seconds: float) -> list[Act]:
    """Return what happens in so many seconds, in the order of time."""
    chance = random.Random(seed)
    acts = [*_faults(chance, seconds), *_verbs(chance, seconds)]
    return sorted(acts, key=lambda act: act.at)


def _faults(chance: random.Random, seconds: float) -> Iterator[Act]:
    at = BEGIN
    while (at := at + chance.uniform(1.5, 6)) < seconds:
        if chance.random() < 0.12:
            yield from _together(chance, at)
            at += 4
        else:
            yield _fault(chance, at)


def _together(chance: random.Random, at: float) -> Iterator[Act]:
    """Several at once: what a bad day is made of."""
    for _ in range(chance.randint(2, 4)):
        yield _fault(chance, at + chance.uniform(0, 2))


def _fault(chance: random.Random, at: float) -> Act:
    kinds: dict[Callable[[random.Random, float], Act], int] = {
        _on_a_worker: 40, _on_a_link: 46, _on_postgres: 8, _on_temporal: 6, _stranger: 2,
    }  # fmt: skip
    (draw,) = chance.choices([*kinds], [*kinds.values()])
    return draw(chance, round(at, 2))


def _on_a_worker(chance: random.Random, at: float) -> Act:
    kind = chance.choices(["kill", "stop", "leave"], [4, 5, 2])[0]
    longest = 14 if kind == "stop" else 6
    return Act(at, kind, f"worker-{chance.randrange(WORKERS)}", _span(chance, longest))


def _on_a_link(chance: random.Random, at: float) -> Act:
    kind = chance.choice(["cut", "hold", "delay", "drop_replies"])
    ends = [f"worker-{n}-{end}" for n in range(WORKERS) for end in ("postgres", "temporal")]
    target = chance.choice([*ends, "operator-postgres"])
    longest = 20 if kind == "delay" else 12
    delay = {"delay": round(chance.choice([0.05, 0.25, 0.5]), 2)} if kind == "delay" else {}
    return Act(at, kind, target, _span(chance, longest), delay)


def _on_postgres(chance: random.Random, at: float) -> Act:
    return Act(at, chance.choice(["restart_fast", "restart_now"]), "postgres", _span(chance, 6))


def _on_temporal(chance: random.Random, at: float) -> Act:
    return Act(at, chance.choice(["restart_fast", "restart_now"]), "temporal", _span(chance, 6))


def _stranger(chance: random.Random, at: float) -> Act:
    """A worker of another cluster; it has so long to end by itself."""
    return Act(at, "stranger", "stranger", 20)


def _span(chance: random.Random, longest: float) -> float:
    """Mostly short, sometimes longer than a lease."""
    return round(0.3 + (longest - 0.3) * chance.random() ** 2, 2)


_VERBS: dict[str, int] = {
    "pause": 6, "resume": 7, "trigger": 12, "backfill": 5, "skip": 8, "unskip": 3, "cancel": 6,
    "rerun": 6, "edit": 5, "remove": 2, "return": 3, "at": 4, "repeat": 1, "reschedule": 2,
    "cancel_own": 1, "dead_rerun": 3, "dead_drop": 2, "rename": 4,
    "second": 3, "flood": 1,
}  # fmt: skip


_PAUSED = ("plain", "cron", "queue", "catch-all", "catch-latest", "skips")
"""Few, or everything would be paused; and not the parents of others."""

_WHOM: dict[str, Sequence[str]] = {
    "pause": _PAUSED,
    "resume": _PAUSED,
    "trigger": (*KEYS, *_STRICT, *_STRICT, *_STRICT),
    "backfill": [key for key in KEYS if key not in (*ENDLESS, *CHAINS, "cancels")],
    "cancel": (*KEYS, *ENDLESS * 12, *("continues-memo",) * 8),
    "edit": (*EDITED,),
    "remove": REMOVED,
    "return": REMOVED,
    "dead_rerun": _FAILING,
    "dead_drop": _FAILING,
    **dict.fromkeys(("at", "repeat", "reschedule", "rename", "cancel_own", "flood"), ("own",)),
    "second": ("plain", "skips", "queue", "catch-all"),
}
"""The keys that a verb is for, where that is not any."""

_SAID: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "pause": lambda chance: (
        {"until": round(chance.uniform(1, 15), 1)} if chance.random() < 0.4 else {}
    ),
    "resume": lambda chance: {"catch_up": chance.choice([None, None, "all", "latest", "none"])},
    "trigger": lambda chance: {
        "overlap": chance.choice([None, None, "allow", "queue", "skip"]),
        "twice": chance.random() < 0.3,
    },
    "backfill": lambda chance: {
        "overlap": chance.choice([None, "allow", "queue"]),
        "include": chance.sample(
            ["user", "excluded", "dependency", "coalesced"], chance.randint(0, 4)
        ),
        "ago": round(chance.uniform(5, 90), 1),
        "span": round(chance.uniform(2, 14), 1),
    },
    "skip": lambda chance: {"ahead": chance.randint(0, 4)},
    "cancel": lambda chance: {
        "whole": chance.random() < 0.4,
        "terminate": chance.random() < 0.4,
    },
    "second": lambda chance: {"memo": chance.random() < 0.5},
    "at": lambda chance: {"ahead": round(chance.uniform(1, 20), 1)},
    "reschedule": lambda chance: {"ahead": round(chance.uniform(1, 20), 1)},
}
"""What is said with a verb, beside whom it is for."""


def _verbs(chance: random.Random, seconds: float) -> Iterator[Act]:
    at = BEGIN
    while (at := at + chance.uniform(0.8, 2.8)) < seconds:
        (verb,) = chance.choices([*_VERBS], [*_VERBS.values()])
        key = chance.choice(_WHOM.get(verb, KEYS))
        said = _SAID[verb](chance) if verb in _SAID else {}
        given = {"which": round(chance.random(), 3), **said}
        yield Act(round(at, 2), verb, key, given=given)
