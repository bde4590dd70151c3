"""Inputs that a team's codec seals: what the ledger keeps, and who may read and write it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from engine.errors import InputsSealed, StartInUse
from engine.ledger import Start
from engine.runtime.events import Event
from engine.runtime.sealing import Sealing, opened
from engine.runtime.tracking.follow_ups import follow
from engine.schedules import load_schedules
from engine.schedules.terms import Sealed
from engine.service import Renamed, ScheduleService
from tests.conformance.past import run_of, taken
from tests.conformance.test_dead_letters import LEFT, end
from tests.conformance.test_handlers import SERVING
from tests.encrypted_team import Mirror

CONVERTER = dataclasses.replace(DataConverter.default, payload_codec=Mirror())
CARD = "4111-1111"
FILE = f"""
defaults: {{onDead: alert}}
schedules: [{{key: k, workflow: noop, everyMs: 86400000, input: {{card: {CARD}-file}}}}]
"""


@pytest.fixture
def team(bench) -> ScheduleService:
    """The service of the team that has the codec."""
    return ScheduleService(bench.ledger, actor="team", data_converter=CONVERTER)


@pytest.fixture
def others(bench) -> ScheduleService:
    """A service without the codec."""
    return ScheduleService(bench.ledger, actor="others")


async def everything(bench) -> str:
    """Every column of every row of the ledger, as text."""
    fetch = bench.ledger._connections.fetch
    names = await fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'sched'")
    return str([await fetch(f"SELECT t::text FROM {name} t") for (name,) in names])


async def plain(arguments) -> list:
    """What the worker of a run gets."""
    return [await opened(each, CONVERTER) for each in arguments]


async def failed(bench, claim, run: str = "run", **told) -> None:
    await run_of(bench, claim, run)
    await end(bench, claim.workflow_id, run=run, **told)


async def test_no_input_is_in_the_ledger_in_plain_text_whichever_way_it_came(bench, team):
    await bench.announce(SERVING)
    await team.apply(load_schedules(FILE))
    (window,) = await bench.claim()
    await failed(bench, window, not_undone=LEFT)
    await follow(bench.ledger, Sealing(bench.ledger, CONVERTER), on_event=print)
    await team.trigger("k", own_input=({"card": f"{CARD}-trigger"},))
    await team.rerun_dead("k", window.bucket, own_input=({"card": f"{CARD}-rerun"},))
    await team.schedule_at("noop", bench.now() + timedelta(days=1), input=f"{CARD}-at")
    await team.start("noop", f"{CARD}-start", id="7")
    given = [*window.arguments]
    for claim in await taken(bench):
        given += claim.arguments
    assert all(isinstance(each, Sealed) for each in given)
    assert str(await plain(given)).count(CARD) == len(given) == 5, "file, handler, three requests"
    assert CARD not in await everything(bench)


async def test_a_sealed_input_that_is_declared_again_is_no_new_version(bench, team):
    await bench.announce(SERVING)
    asked = {"key": "sealed", "cron": "0 2 * * *", "input": f"{CARD}-declared"}
    outcomes = [(await team.declare("noop", **asked)).outcome for _ in range(2)]
    outcomes.append((await team.declare("noop", **{**asked, "input": "another"})).outcome)
    assert outcomes == ["created", "unchanged", "changed"]
    assert CARD not in await everything(bench)


async def test_plain_inputs_stay_plain_without_a_codec(bench, others):
    await others.apply(load_schedules(FILE))
    assert CARD in await everything(bench), "what the test above looks for can be found"
    (claim,) = await bench.claim()
    assert claim.arguments == ({"card": f"{CARD}-file"},)


async def test_a_project_that_is_sealed_takes_no_input_without_the_codec(bench, team, others):
    await bench.announce(SERVING)
    await team.apply(load_schedules(FILE))
    edited = load_schedules(FILE.replace("86400000", "43200000"))
    for attempt in (
        others.apply(load_schedules(FILE)),
        others.apply(edited, force=True),
        others.plan(edited),
        others.trigger("k", own_input=(1,)),
        others.start("noop", 1, id="7"),
        others.schedule_at("noop", "2099-01-01T00:00:00Z", input=1),
    ):
        with pytest.raises(InputsSealed, match="the inputs of project default are sealed"):
            await attempt
    row = await others.schedule("k")
    assert row.schedule is not None
    assert (row.schedule.every_ms, row.definition_version) == (86400000, 1)


async def test_without_the_codec_everything_that_names_no_input_goes_on(bench, team, others):
    await team.apply(load_schedules(FILE))
    await others.pause("k", reason="by hand")
    await others.resume("k")
    await others.trigger("k")
    (claim,) = await taken(bench)
    assert await plain(claim.arguments) == [{"card": f"{CARD}-file"}]
    await failed(bench, claim)
    assert [each.status for each in await others.dead_letters()] == ["failed"]


async def test_a_key_that_moved_to_another_project_is_not_written_over_in_plain(
    bench, team, others
):
    await team.apply(load_schedules(FILE))
    moved = load_schedules("project: other\n" + FILE.replace("86400000", "43200000"))
    with pytest.raises(InputsSealed, match="the input of k is sealed"):
        await others.apply(moved, take_from=Renamed("default"))
    await team.apply(moved, take_from=Renamed("default"))


async def test_the_same_file_changes_nothing_and_an_edit_says_what_it_was(bench, team):
    await team.apply(load_schedules(FILE))
    assert (await team.apply(load_schedules(FILE))).already_applied
    forced = await team.apply(load_schedules(FILE), force=True)
    assert (forced.unchanged, forced.changed) == (("k",), ())
    report = await team.apply(load_schedules(FILE.replace(f"{CARD}-file", "5500")))
    assert report.edits["k"] == (
        f'input {{"card": "{CARD}-file"}} → {{"card": 5500}}',
    )  # fmt: skip


async def test_a_plan_with_the_codec_writes_no_seal(bench, team, others):
    await others.apply(load_schedules(FILE))
    plan = await team.plan(load_schedules(FILE.replace("86400000", "43200000")))
    assert [each.key for each in plan.changes] == ["k"]
    await others.apply(load_schedules(FILE), force=True)


async def test_a_codec_that_comes_later_seals_what_is_in_force_and_reads_what_was_before(
    bench, team, others
):
    await others.apply(load_schedules(FILE))
    (old,) = await bench.claim()
    await failed(bench, old)
    await others.start("noop", {"a": 1}, id="7")
    report = await team.apply(load_schedules(FILE))
    assert report.edits == {"k": ("input is sealed now",)}
    (letter,) = await team.dead_letters()
    assert letter.arguments == ({"card": f"{CARD}-file"},)
    assert (await team.start("noop", {"a": 1}, id="7")).new is False
    await team.trigger("k")
    claims = {claim.key: claim for claim in await taken(bench)}
    assert isinstance(claims["k"].arguments[0], Sealed)


async def test_a_start_is_known_again_by_its_input_though_that_is_sealed(bench, team):
    await bench.announce(SERVING)
    first = await team.start("noop", {"a": 1, "b": 2}, id="7")
    again = await team.start("noop", {"b": 2.0, "a": 1}, id="7", project="elsewhere")
    assert (again.new, again.start) == (False, first.start)
    with pytest.raises(StartInUse, match="another input"):
        await team.start("noop", {"a": 2}, id="7")


async def test_a_digest_betrays_no_input_that_can_be_guessed(bench, team, others):
    (guess,) = load_schedules(FILE).schedules
    await team.apply(load_schedules(FILE))
    await team.apply(load_schedules("project: other\n" + FILE.replace("key: k", "key: same")))
    start = (await team.start("noop", 1234, id="7")).start
    async with bench.ledger.transaction() as transaction:
        heads = await transaction.heads("default", ["k", "same"])
        last = await transaction.lock_project("default")
    assert heads["k"].digest != guess.digest
    stored = [(await others.schedule(key)).schedule for key in ("k", "same")]
    one, other = (each.input for each in stored if each is not None)
    assert one.digest != other.digest, "each project has a key of its own"
    assert last is not None
    assert last.file_digest != load_schedules(FILE).digest
    assert start.digest != Start.digest_of((1234,))


async def test_a_handler_gets_the_sealed_input_of_its_fire_from_a_replica_with_the_codec(
    bench, team
):
    await bench.announce(SERVING)
    await team.apply(load_schedules(FILE))
    (claim,) = await bench.claim()
    await failed(bench, claim, error="no luck")
    without, told = Sealing(bench.ledger), list[Event]()
    assert await follow(bench.ledger, without, on_event=told.append) == 0
    assert await bench.ledger.anything_ended(), "it is left to a replica with the codec"
    assert await follow(bench.ledger, Sealing(bench.ledger, CONVERTER), on_event=print) == 1
    (handler,) = await taken(bench)
    (given,) = await plain(handler.arguments)
    assert (given["input"], given["error"]) == ({"card": f"{CARD}-file"}, "no luck")
    assert await follow(bench.ledger, without, on_event=told.append) is None


class Counting(Mirror):
    """A codec that may ask a server for its keys at each call."""

    decoded = 0

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.decoded += 1
        return await super().decode(payloads)


async def test_an_apply_asks_the_codec_for_no_input_that_did_not_change(bench, others):
    await others.apply(load_schedules(FILE))
    codec = Counting()
    converter = dataclasses.replace(DataConverter.default, payload_codec=codec)
    team = ScheduleService(bench.ledger, actor="team", data_converter=converter)
    report = await team.apply(load_schedules(FILE))
    assert report.edits == {"k": ("input is sealed now",)}
    edited = FILE.replace("86400000", "43200000")
    (edits,) = (await team.apply(load_schedules(edited))).edits.values()
    assert "every 1d → 12h" in "; ".join(edits), edits
    assert codec.decoded == 1, "the key of the digests"
    (edits,) = (await team.apply(load_schedules(edited.replace("-file", "-new")))).edits.values()
    assert f"{CARD}-new" in str(edits)
    assert f"{CARD}-file" in str(edits)


class Forgetful(Mirror):
    """A codec without the keys of the inputs of files."""

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        found = await super().decode(payloads)
        if any(b"-file" in each.data for each in found):
            raise KeyError("2019")
        return found


async def test_an_input_that_the_codec_cannot_read_holds_up_no_other_handler(
    bench, team, monkeypatch
):
    await bench.announce(SERVING)
    plain_too = FILE.replace("]", ", {key: p, workflow: noop, everyMs: 86400000}]")
    await team.apply(load_schedules(plain_too))
    for claim in sorted(await bench.claim(), key=lambda each: each.key):
        await failed(bench, claim, f"run of {claim.key}")
    await team.trigger("k", own_input=(f"{CARD}-trigger",))
    (triggered,) = await taken(bench)
    await failed(bench, triggered)
    keyless = dataclasses.replace(CONVERTER, payload_codec=Forgetful())
    handlers = []
    for at_once in (1, 200):
        monkeypatch.setattr("engine.runtime.tracking.follow_ups._AT_ONCE", at_once)
        with pytest.raises(InputsSealed, match="KeyError: '2019'"):
            await follow(bench.ledger, Sealing(bench.ledger, keyless), on_event=print)
        handlers += await taken(bench)
    assert [handler.key for handler in handlers] == ["p", "k"]
    assert handlers[1].workflow_id == f"{triggered.workflow_id}:dead"
    assert await follow(bench.ledger, Sealing(bench.ledger, CONVERTER), on_event=print) == 1


class Silent(Mirror):
    """A codec whose server of keys does not answer."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        await asyncio.Event().wait()
        return [*payloads]


async def test_a_codec_that_does_not_answer_is_not_waited_for(bench, monkeypatch):
    monkeypatch.setattr("engine.runtime.sealing._PATIENCE", 0.01)
    silent = dataclasses.replace(CONVERTER, payload_codec=Silent())
    with pytest.raises(InputsSealed, match="the codec failed: TimeoutError"):
        await Sealing(bench.ledger, silent).seal("default", [1])


@pytest.mark.parametrize("codec", [True, False])
async def test_people_read_an_input_where_the_codec_is_and_else_that_it_is_sealed(
    bench, team, others, codec
):
    await team.apply(load_schedules(FILE))
    (claim,) = await bench.claim()
    await failed(bench, claim)
    service = team if codec else others
    row, (letter,) = await service.schedule("k"), await service.dead_letters_of("k", claim.bucket)
    assert row.schedule is not None
    for given in (row.schedule.input, *letter.arguments):
        assert (given == {"card": f"{CARD}-file"}) is codec
        assert isinstance(given, Sealed) is not codec


async def test_a_rerun_of_a_letter_has_its_own_sealed_input_without_the_codec_too(
    bench, team, others
):
    await team.apply(load_schedules(FILE))
    (claim,) = await bench.claim()
    await failed(bench, claim)
    await team.rerun_dead("k", claim.bucket, own_input=(f"{CARD}-rerun",))
    (rerun,) = await taken(bench)
    await failed(bench, rerun, "another run")
    await others.rerun_dead("k", claim.bucket)
    (again,) = await taken(bench)
    assert await plain(again.arguments) == [f"{CARD}-rerun"]


async def test_an_input_that_a_later_version_sealed_is_never_started(bench, team, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr("engine.schedules.terms._SEALED_VERSION", 2)
        await team.apply(load_schedules(FILE.replace("everyMs: 86400000", "everyMs: 1000")))
    assert await bench.claim() == []
    (row,) = await bench.ledger.schedules()
    assert "sealed in a way that this version does not know" in (row.error or "")
