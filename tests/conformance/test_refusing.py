"""A schedule whose workflow no worker has is refused alone, when its file is applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from engine.runtime.apply.apply import dry_run, retire_absent
from engine.schedules import load_schedules

STARTS = "ew code is found when the worker starts again; `sched up --reload` does so on each save"
GOES_ON = "; its last good definition stays in effect"


def file(*entries: str) -> str:
    return f"schedules: [{', '.join(entries)}]"


def entry(key: str, workflow: str, more: str = "everyMs: 3600000") -> str:
    return f"{{key: {key}, workflow: {workflow}, {more}}}"


async def keys(bench) -> set[str]:
    return {row.key for row in await bench.ledger.schedules()}


async def announced(bench, *types: str) -> None:
    await bench.announce(replace(bench.serving, replica="newer", types=frozenset(types)))


async def test_it_is_named_with_the_one_that_was_meant_and_the_others_are_applied(bench):
    report = await bench.declare(
        file(
            entry("near", "nop"),
            entry("pinned", "noop@7"),
            entry("far", "something-else"),
            entry("good", "noop"),
        )
    )
    nobody = "refused: no worker on task queue sched knows"
    assert report.refused == {
        "near": f"{nobody} nop; did you mean noop? N{STARTS}",
        "pinned": f"{nobody} noop@7; did you mean noop@1? N{STARTS}",
        "far": f"{nobody} something-else; n{STARTS}",
    }
    assert report.added == ("good",)
    assert await keys(bench) == {"good"}
    assert str(report) == "project default: 1 added, 3 refused"


async def test_what_was_good_before_goes_on(bench):
    await bench.declare(file(entry("k", "noop", "everyMs: 60000")))
    report = await bench.declare(file(entry("k", "noop@2", "everyMs: 1000")))
    assert report.changed == ()
    assert report.refused["k"].endswith(f"N{STARTS}{GOES_ON}")
    (claim,) = await bench.claim()
    assert (claim.workflow_type, claim.definition_version) == ("noop@1", 1)


async def test_the_same_file_is_applied_again_until_somebody_has_the_workflow(bench):
    text = file(entry("old", "noop"), entry("new", "noop@2"))
    await bench.declare(text)
    again = await bench.declare(text)
    assert (again.already_applied, again.unchanged, [*again.refused]) == (False, ("old",), ["new"])
    await announced(bench, "noop@2")
    assert (await bench.declare(text)).added == ("new",)
    assert (await bench.declare(text)).already_applied


async def test_of_a_task_queue_that_nobody_ever_served_nothing_can_be_said(bench):
    report = await bench.declare(file(entry("k", "nop", "everyMs: 3600000, taskQueue: mail")))
    assert (report.added, report.refused) == (("k",), {})
    said = "no worker on task queue mail knows nop; no worker has ever served that task queue"
    assert report.waiting == {"k": said}


@pytest.mark.parametrize("more", ["enabled: false", "external: true"])
async def test_what_fires_nothing_or_is_nobodys_here_is_never_refused(bench, more):
    report = await bench.declare(file(entry("k", "nop", f"everyMs: 3600000, {more}")))
    assert (report.added, report.refused) == (("k",), {})


async def test_a_schedule_that_was_disabled_is_refused_when_it_is_enabled(bench):
    await bench.declare(file(entry("k", "nop", "everyMs: 3600000, enabled: false")))
    assert [*(await bench.declare(file(entry("k", "nop")))).refused] == ["k"]


async def test_schedules_that_follow_each_other_are_applied_together_or_not_at_all(bench):
    times = "everyMs: 3600000"
    await bench.declare(file(entry("a", "noop", times), entry("b", "noop", "after: {schedule: a}")))
    later = "everyMs: 7200000"
    report = await bench.declare(
        file(
            entry("a", "noop", later),
            entry("b", "nop", "after: {schedule: a}"),
            entry("c", "noop", "needs: [b]"),
            entry("alone", "noop", later),
        )
    )
    linked = "refused: after or needs links it with b, which is refused"
    assert report.refused["a"] == linked + GOES_ON
    assert report.refused["c"] == linked
    assert [*report.refused] == ["a", "b", "c"]
    assert (report.added, report.changed) == (("alone",), ())


async def test_what_is_refused_is_in_the_file_and_what_is_not_there_is_retired_all_the_same(bench):
    await bench.declare(file(entry("k", "noop"), entry("gone", "noop"), entry("b", "noop")))
    text = file(entry("k", "noop@2"), entry("b", "noop"))
    assert (await bench.declare(text)).absent == ("gone",)
    read = load_schedules(text)
    report = await retire_absent(bench.ledger, read, by="test", absent_for=timedelta(0))
    assert report.retired == ("gone",)
    assert [*(await bench.declare(text)).refused] == ["k"]


async def test_plan_tells_what_would_be_refused_and_what_would_not(bench):
    await bench.declare(file(entry("k", "noop")))
    text = file(entry("k", "noop@2"), entry("new", "noop"))
    found = await dry_run(bench.ledger, load_schedules(text), by="ops")
    assert [(change.key, change.kind) for change in found.changes] == [("new", "added")]
    assert found.refused_keys == ("k",)
    assert found.unknown["k"].startswith("refused: no worker on task queue sched knows noop@2")
    assert (await bench.declare(text)).refused == found.unknown
