"""Workflows of GitHub Actions as schedules: each ``cron`` of ``on.schedule`` is one.

GitHub reads five POSIX fields, in UTC unless an entry names a ``timezone``. When it is busy it
starts late or not at all, and it makes up for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

import yaml

from engine.errors import ImportUnreadable
from engine.imports.cron import GITHUB, Grammar, settle_clock
from engine.imports.entries import (
    Collector,
    Draft,
    Import,
    NotExpressed,
    Options,
    Remark,
    as_input,
    read_text,
    resolve,
)
from engine.schedules import Cron

WORKFLOW: Final = "run_github_workflow"
_GRAMMAR: Final = Grammar("GitHub", starts=True)
_SHORTEST: Final = timedelta(minutes=5)
"""Time between two runs of a workflow, at least."""
_LOOK, _FIRES = 366, 200
"""Days, and fires, among which a shorter time is looked for."""
_HINT: Final = "write sched import github-workflow .github/workflows/*.yml"
_TWICE: Final = "several crons of a workflow are a schedule each, as there"


def read_workflows(names: Sequence[str], options: Options) -> Import:
    """Read workflow files; those without ``on.schedule`` are named and left out.

    Raises:
        ImportUnreadable: a file cannot be read or is not YAML, or none has a schedule.
    """
    entries, others = Collector(options, WORKFLOW), []
    for name in names:
        for file, document in _documents(name):
            on = document.get("on") if isinstance(document, Mapping) else None
            if not isinstance(on, Mapping) or "schedule" not in on:
                others.append(file)
                continue
            listed = on["schedule"] if isinstance(on["schedule"], list) else [on["schedule"]]
            for number, item in enumerate(listed):
                draft = Draft(f"workflow {file}", "", Path(file).stem)
                if number:
                    draft.note("twice", _TWICE)
                fill = partial(
                    _fill, file=file, title=document.get("name"), item=item, options=options
                )
                entries.add(draft, fill)
    if not entries.found:
        raise ImportUnreadable(f"{', '.join(names)} has no on.schedule", hint=_HINT)
    return entries.imported("GitHub workflows", *_remarks(others))


def _documents(name: str) -> Iterator[tuple[str, Any]]:
    try:
        # All scalars are text, so that `on` is no boolean.
        documents = [*yaml.load_all(read_text(name), Loader=yaml.BaseLoader)]
    except yaml.YAMLError as error:
        first = " ".join(str(error).split())[:200]
        raise ImportUnreadable(f"{name} is no YAML: {first}", hint=_HINT) from None
    for document in documents:
        yield ("workflow.yml" if name == "-" else Path(name).name), document


def _remarks(others: Sequence[str]) -> Iterator[Remark]:
    yield Remark(
        "note",
        "action",
        "each cron starts a workflow that is yours to write; its input is {file, name, schedule}."
        " It dispatches the workflow of GitHub, which needs a workflow_dispatch: its jobs, other"
        " triggers and concurrency stay there",
    )
    yield Remark("note", "catch-up", "GitHub makes up for nothing that it dropped: policy none")
    if others:
        listed = ", ".join(others)
        yield Remark("note", "action", f"left out, without on.schedule: {listed}")


def _fill(draft: Draft, *, file: str, title: Any, item: Any, options: Options) -> None:
    given = draft.open(item, "schedule.")
    text = resolve(given.take("cron", kind=str), "schedule.cron", "it is the time")
    draft.text = text = " ".join(text.split())
    if text.startswith("@"):
        raise NotExpressed(f"GitHub does not read {text!r}; it has five fields")
    _GRAMMAR.check(text)
    place = given.take("timezone", kind=str)
    draft.fields |= {"cron": text, "timezone": place or "UTC", "catchUp": {"policy": "none"}}
    fires = Cron(text).fires(options.now, options.now + timedelta(days=_LOOK))
    if any(two - one < _SHORTEST for one, two in pairwise(islice(fires, _FIRES))):
        draft.differs("limits", "GitHub runs it every five minutes at most")
    day, weekday = text.split()[2], text.split()[4]
    if any(each[0] == "*" != each for each in (day, weekday)) and "*" not in (day, weekday):
        draft.differs(
            "day-rule",
            f"{text}: here */n and the other day both have to match; GitHub does not say what it"
            " does",
        )
    settle_clock(draft, GITHUB, options.now)
    if place:
        draft.note("dst", "GitHub does not say what it does when a clock repeats an hour")
    draft.fields["input"] = as_input(file=file, name=title, schedule=text)
