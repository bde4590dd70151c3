"""Schedules that are declared in code: beside their workflows, or given as objects.

They join those of a file, are checked alike, and belong to the project of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from engine.errors import Code, Problem, ScheduleFileError
from engine.schedules.loader.relations import chain_faults, with_present_parents
from engine.schedules.model import FIELDS, Declaration, Schedule, ScheduleFile
from engine.schedules.rules import Fault, faults_of, names_elsewhere, suggest

_INLINE: Final = "SchedulePlugin"
"""Name of a file that consists of objects, in messages."""


def joined(
    file: ScheduleFile, declared: Sequence[Declaration], place_of: Callable[[str], str]
) -> ScheduleFile:
    """Return the file with the schedules that code declares. Joining them again changes nothing.

    Args:
        file: the file.
        declared: the declarations.
        place_of: returns where the file has a key, for people.

    Raises:
        ScheduleFileError: lists every problem of them, each at its place in the code.
    """
    new = [each for each in declared if each not in file.declared]
    if not new:
        return file
    found = [(each, *_read(each)) for each in new]
    problems = [problem for _, _, faults in found for problem in faults]
    schedules = [schedule for _, schedule, _ in found if schedule]
    places = {schedule.key: each for each, schedule, _ in found if schedule}
    problems += _taken(file, found, place_of)
    every = with_present_parents([*file.schedules, *schedules])
    if not problems:
        faults = chain_faults(every, {each.key for each in every})
        problems = [_problem(places[key], key, fault) for key, fault in faults if key in places]
    digest = joined_digest(file.digest, new)
    if problems:
        raise ScheduleFileError(file.name, tuple(problems), digest, file.calendars)
    return replace(
        file,
        schedules=tuple(every),
        digest=digest,
        declared=(*file.declared, *new),
    )


def joined_digest(digest: str, declared: Sequence[Declaration]) -> str:
    """Return the digest of a file with these declarations; where they stand has no meaning."""
    if not declared:
        return digest
    fields = [each.fields for each in declared]
    text = json.dumps([digest, fields], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def inline_file(schedules: Sequence[Schedule], project: str) -> ScheduleFile:
    """Return schedules that were given as objects as a file of a project.

    Raises:
        ScheduleFileError: two have one key, or do not fit together.
    """
    schedules = with_present_parents(schedules)
    counts = Counter(each.key for each in schedules)
    problems = [
        Problem(Code.KEY_DUPLICATE, f"{key} is given {count} times", "give each its own key")
        for key, count in counts.items()
        if count > 1
    ]
    problems += [
        Problem(fault.code, f"{key}: {fault.message}", fault.hint, key=key)
        for key, fault in chain_faults(schedules, counts.keys())
    ]
    if problems:
        raise ScheduleFileError(_INLINE, tuple(problems))
    text = " ".join(each.digest for each in schedules)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ScheduleFile(project, None, tuple(schedules), _INLINE, digest)


def _read(declared: Declaration) -> tuple[Schedule | None, list[Problem]]:
    key = str(declared.fields.get("key"))
    try:
        return Schedule.model_validate(dict(declared.fields)), []
    except ValidationError as error:
        return None, [_problem(declared, key, fault) for fault in faults_of(error)]


def _problem(declared: Declaration, key: str, fault: Fault) -> Problem:
    hint = fault.hint
    if fault.code == Code.FIELD_UNKNOWN and len(fault.path) == 1:
        meant = suggest(str(fault.path[0]), FIELDS, names_elsewhere(Schedule))
        hint = replace(meant, name=FIELDS[meant.name]).hint if meant else hint
    message = f"{key}: {fault.message}"
    return Problem(fault.code, message, hint, declared.line, 1, key=key, file=declared.file)


def _taken(
    file: ScheduleFile,
    found: Sequence[tuple[Declaration, Schedule | None, Any]],
    place_of: Callable[[str], str],
) -> Iterator[Problem]:
    """Yield a problem for each key that another schedule has, with both places."""
    in_file, places = {each.key for each in file.schedules}, file.places
    for declared, schedule, _ in found:
        if schedule is None:
            continue
        other = places.get(schedule.key)
        if other is None and schedule.key in in_file:
            other = place_of(schedule.key)
        if other is not None:
            fault = Fault((), Code.KEY_DUPLICATE, f"{other} has this key too", "write key=")
            yield _problem(declared, schedule.key, fault)
        places.setdefault(schedule.key, declared.place)
