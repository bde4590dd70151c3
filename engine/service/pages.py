"""Pages of schedules: filters, and cursors that stay valid while schedules come and go."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Unpack

from engine.errors import CursorInvalid, EngineError, ScheduleError, ScheduleRetired
from engine.ledger import ScheduleFilter, ScheduleRow
from engine.schedules import exact_text, first_of, key_patterns, refusals
from engine.service.base import Filters, ReadOperations, not_found

LONGEST_PAGE: Final = 1000
"""Most schedules of one page."""


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A page of schedules in key order.

    Attributes:
        schedules: at most as many as were asked for. Sealed inputs stay sealed.
        cursor: gives the next page; None if this is the last one.
    """

    schedules: tuple[ScheduleRow, ...]
    cursor: str | None


class Lists(ReadOperations):
    """Lists of schedules, page by page."""

    async def get(self, key: str) -> ScheduleRow | None:
        """Return one schedule, even a cancelled or retired one; None if there is none."""
        return await self.find(key)

    async def list(
        self,
        project: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> SchedulePage:
        """Return a page of the schedules that match all filters, in key order.

        Pages follow the last key of the page before: schedules that come or go meanwhile neither
        repeat nor hide others. Starts of applications (``service.start``) are no schedules.

        Args:
            project: only schedules of this project.
            limit: most schedules of the page, 1 to 1000.
            cursor: that of the page before; None is the first page.
            filters: see ``ScheduleFilter``.

        Raises:
            CursorInvalid: the cursor is not one of a list with these filters.
            ScheduleError: ``limit`` is out of range, or ``due_before`` is naive.
        """
        if not 1 <= limit <= LONGEST_PAGE:
            raise ScheduleError(f"limit is {limit}", hint=f"write 1 to {LONGEST_PAGE}")
        due_before = filters.get("due_before")
        if due_before is not None and due_before.tzinfo is None:
            raise ScheduleError("due_before is naive", hint="give it a time zone, e.g. tzinfo=UTC")
        wanted = ScheduleFilter(project=project, **filters)
        mark = _mark(wanted)
        after = _key_after(cursor, mark) if cursor is not None else None
        rows = await self._ledger.schedules(wanted=wanted, after=after, limit=limit + 1)
        page = tuple(rows[:limit])
        return SchedulePage(page, as_cursor(mark, page[-1].key) if len(rows) > limit else None)

    async def select(
        self,
        keys: Sequence[str] = (),
        *,
        project: str | None = None,
        tag: str | None = None,
        every: bool = False,
    ) -> tuple[ScheduleRow, ...]:
        """Return the schedules that an operation on several is for, in key order.

        Args:
            keys: keys, or patterns with ``*`` for any text and ``?`` for one character; a schedule
                matches one of them.
            project: only schedules of this project.
            tag: only schedules with this tag.
            every: every schedule; nothing else may be named then.

        Raises:
            ScheduleNotFound: a key or pattern stands for no schedule, or nothing matches them all.
            ScheduleError: nothing is named, ``every`` is not alone, or a pattern is none of keys.
        """
        if every == (bool(keys) or project is not None or tag is not None):
            raise ScheduleError(
                "all and others are named" if every else "no schedule is named",
                hint="name keys, patterns such as 'billing.*', a tag or a project; or all",
            )
        with refusals():
            patterns = key_patterns(tuple(keys)) if keys else ()
        rows = await self.schedules(project, tag=tag, keys=patterns)
        found = tuple(row for row in rows if row.state != "retired")
        missed = [each for each in keys if not any(fnmatchcase(row.key, each) for row in found)]
        if missed or not (found or every):
            raise _unmatched(await self.schedules(), missed, project=project, tag=tag)
        return found


_NAMED: Final = 5


def _unmatched(
    rows: Iterable[ScheduleRow], missed: Sequence[str], *, project: str | None, tag: str | None
) -> EngineError:
    """Return the error for keys, or else for a tag or a project, that no schedule has."""
    by_key = {row.key: row for row in rows}
    of = "".join([f" with tag {tag}" if tag else "", f" of project {project}" if project else ""])
    if not missed:
        tags = {tag for row in by_key.values() if row.schedule for tag in row.schedule.tags}
        projects = {row.project for row in by_key.values()}
        return not_found(of.strip(), tags if tag else projects, of=tag or project)
    first = by_key.get(missed[0])
    if first is not None and first.state == "retired":
        return ScheduleRetired(f"{first.key} was retired", hint="leave it out")
    return not_found(f"{first_of(missed, _NAMED)}{of}", [*by_key], of=missed[0])


# --- cursors ---


def _mark(wanted: ScheduleFilter) -> str:
    """Return a short digest of the filters, so that no cursor continues another list."""
    text = json.dumps(wanted.given(), sort_keys=True, default=exact_text)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def as_cursor(*place: str) -> str:
    """Return the cursor of a place in a list, opaque to callers."""
    text = json.dumps(place, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of_cursor(cursor: str, parts: int, *, hint: str) -> list[str]:
    """Return the place of a cursor, which has so many parts.

    Raises:
        CursorInvalid: it is no cursor of such a list.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    if [each for each in texts if each.isprintable()] != found or len(texts) != parts:
        raise CursorInvalid(hint=hint)
    return texts


def _key_after(cursor: str, mark: str) -> str:
    """Return the key after which a page begins.

    Raises:
        CursorInvalid: no list with these filters gave this cursor.
    """
    hint = "give the cursor of the page before with the same filters, or none"
    given, key = place_of_cursor(cursor, 2, hint=hint)
    if given != mark:
        raise CursorInvalid(hint=hint)
    return key
