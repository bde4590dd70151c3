"""History of a schedule: which definition owed which windows, and when it was on hold.

A definition owes the windows after the moment at which it took effect, up to the moment at which
the next one did. Pauses are those of the recorded actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from engine.audit.evaluator import OwedWindows, instant, moment
from engine.ledger import ActionRow, DefinitionVersion, Standing
from engine.schedules import exact_text, parse_duration

NO_END: Final = 2**62
"""After every instant."""

_MICROSECONDS: Final = 1_000_000
_GRACE, _SPREAD, _POLICY = "60s", "0s", "latest"


class UnreadableVersion(Exception):
    """A stored definition that this version of the audit cannot read."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """The time of one definition, in which it owes its windows.

    Attributes:
        version: its definition's version.
        series: the series of its windows.
        begins, ends: it owes the windows in ``begins < t <= ends``; instants of the evaluator.
        windows: its windows, without these bounds.
        enabled: whether it fires.
        policy: its ``catchUp.policy``.
        grace: its ``grace``, in microseconds.
        spread: its ``spread``, in microseconds; 0 where a window may wait in line, because it
            then starts when its turn comes.
        retires: whether the key was, or is, retired while it was the newest.
        is_moment: whether it has one window, by ``at``.
        shadow_until: its windows before are those of shadow mode; 0 where it has none.
        limit: how many windows it starts; None is all.
    """

    version: int
    series: int
    begins: int
    ends: int
    windows: OwedWindows
    enabled: bool
    policy: str
    grace: int
    spread: int
    retires: bool
    is_moment: bool
    shadow_until: int = 0
    limit: int | None = None

    def due(self, at: int) -> int:
        """Return when the run of a window is due, its share of ``spread`` included."""
        return at + self.windows.delay(at, self.spread)


class OwedWindow(NamedTuple):
    """A window that was to be decided, and the definition that owed it."""

    at: int
    chapter: Chapter


class PauseSpan(NamedTuple):
    """A pause: its windows are those in ``begins < t < ends``.

    ``resumed``: an operator ended it, at a moment that is recorded a little late.
    """

    begins: int
    ends: int
    resumed: bool = False

    def has(self, at: int) -> bool:
        """Return whether a window opened in it."""
        return self.begins < at < self.ends


@dataclass(frozen=True, slots=True)
class History:
    """Definitions and pauses of one schedule.

    Attributes:
        standing: its present state.
        chapters: of each version that the ledger returned, oldest first.
        pauses: in order of time.
    """

    standing: Standing
    chapters: tuple[Chapter, ...]
    pauses: tuple[PauseSpan, ...]

    @classmethod
    def of(
        cls,
        standing: Standing,
        versions: Sequence[DefinitionVersion],
        actions: Sequence[ActionRow],
    ) -> History:
        """Return the history that a ledger has recorded.

        Args:
            standing: the present state of the schedule.
            versions: its definitions, in any order.
            actions: what was done to it, in any order.

        Raises:
            UnreadableVersion: one of the definitions cannot be read.
        """
        ordered = sorted(versions, key=lambda each: each.version)
        return cls(
            standing,
            tuple(_chapter(ordered, place, standing) for place in range(len(ordered))),
            tuple(_pauses(ordered, actions, standing)),
        )

    @property
    def cursor(self) -> int:
        """The cursor, as an instant of the evaluator."""
        return instant(self.standing.cursor)

    def owed(self, first: int, last: int) -> Iterator[OwedWindow]:
        """Yield the windows in ``first <= t <= last``, in order, one at a time."""
        for chapter in self.chapters:
            after, until = max(chapter.begins, first - 1), min(chapter.ends, last)
            if after < until:
                for at in chapter.windows.fires(after, until):
                    yield OwedWindow(at, chapter)

    def chapter_of(self, at: int) -> Chapter | None:
        """Return the chapter in whose time an instant lies."""
        return next((each for each in self.chapters if each.begins < at <= each.ends), None)

    def version(self, number: int) -> Chapter | None:
        """Return the chapter of a version; None if the ledger did not return it."""
        return next((each for each in self.chapters if each.version == number), None)

    def pause_at(self, at: int) -> PauseSpan | None:
        """Return the pause in which a window opened."""
        return next((span for span in self.pauses if span.has(at)), None)

    def hold_now(self, patience: int) -> Literal["paused", "disabled", "retired"] | None:
        """Return why undecided windows wait for the end of a hold; None if nothing holds them.

        Args:
            patience: how long after its end, in microseconds, a pause may still hold them.
        """
        standing = self.standing
        if standing.retired_at is not None:
            return "retired"
        if not standing.enabled:
            return "disabled"
        pause = standing.pause
        if pause is None:
            return None
        ends = NO_END if pause.until is None else instant(pause.until)
        return "paused" if instant(standing.now) <= ends + patience else None

    def has_ended(self, chapter: Chapter) -> bool:
        """Return whether nothing becomes due any more, by the limit of the present definition."""
        return self.standing.idle and chapter.ends == NO_END and chapter.limit is not None


def _chapter(versions: Sequence[DefinitionVersion], place: int, standing: Standing) -> Chapter:
    this = versions[place]
    following = versions[place + 1] if place + 1 < len(versions) else None
    definition = this.definition
    begins = instant(this.effective_from)
    if this.version == 1 and _owes_its_first(definition):
        begins -= 1
    try:
        return Chapter(
            version=this.version,
            series=this.series,
            begins=begins,
            ends=instant(following.effective_from) if following else NO_END,
            windows=OwedWindows(definition),
            enabled=bool(definition.get("enabled", True)),
            policy=str(definition.get("catchUp", {}).get("policy", _POLICY)),
            grace=_length(definition.get("grace", _GRACE)),
            spread=_spread(definition),
            retires=standing.retired_at is not None
            if following is None
            else following.series > this.series,
            is_moment="at" in definition,
            shadow_until=_shadow_until(definition),
            limit=definition.get("limit"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        text = f"version {this.version}: {type(error).__name__}: {error}"
        raise UnreadableVersion(text) from error


def _owes_its_first(definition: Mapping[str, Any]) -> bool:
    """Return whether a new key owes the window that is open when it is first seen."""
    if "at" in definition:
        return False
    first_fire = definition.get("firstFire", "now" if "everyMs" in definition else "next")
    return bool(first_fire == "now")


def _shadow_until(definition: Mapping[str, Any]) -> int:
    if definition.get("mode") != "shadow":
        return 0
    until = definition.get("shadowUntil")
    return NO_END if until is None else instant(datetime.fromisoformat(until))


def _spread(definition: Mapping[str, Any]) -> int:
    waits = definition.get("overlap", "allow") != "allow" or "after" in definition
    if waits or definition.get("needs"):
        return 0
    return _length(definition.get("spread", _SPREAD))


def _length(text: str) -> int:
    return round(parse_duration(text).total_seconds() * _MICROSECONDS)


# --- pauses ---


def _pauses(
    versions: Sequence[DefinitionVersion], actions: Sequence[ActionRow], standing: Standing
) -> Iterator[PauseSpan]:
    """Yield the pauses of the recorded actions, and the present one."""
    begun: tuple[int, int] | None = None
    first = versions[0] if versions else None
    if first is not None and first.version == 1 and first.definition.get("paused"):
        begun = instant(first.effective_from) - 1, NO_END
    for action in sorted(actions, key=lambda each: each.at):
        if action.verb == "pause" and action.after is not None:
            new = _span(action.after["paused"])
            if begun is not None and begun[1] <= instant(action.at) and new[0] != begun[0]:
                yield PauseSpan(*begun)  # it had ended by itself
                begun = None
            begun = (min(begun[0], new[0]), new[1]) if begun else new
        elif action.verb == "resume" and action.before is not None:
            begins, ends = begun or _span(action.before["paused"])
            by_itself = ends < instant(action.at)
            yield PauseSpan(begins, min(ends, instant(action.at)), resumed=not by_itself)
            begun = None
    if begun is not None and (begun[1] < NO_END or standing.pause is not None):
        yield PauseSpan(*begun)
    elif standing.pause is not None:
        until = standing.pause.until
        ends = NO_END if until is None else instant(until)
        yield PauseSpan(instant(standing.pause.at), ends)


def _span(paused: Mapping[str, Any]) -> tuple[int, int]:
    until = paused.get("until")
    ends = NO_END if until is None else instant(datetime.fromisoformat(until))
    return instant(datetime.fromisoformat(paused["at"])), ends


def exact(at: int) -> str:
    """Return an instant of the evaluator as sentences name it."""
    return exact_text(moment(at))
