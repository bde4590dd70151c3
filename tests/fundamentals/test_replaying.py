"""``assert_replayable``: today's code against what runs of yesterday did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHistory

from engine.testing import DevServer, assert_replayable, fake, run_workflow
from tests.fundamentals.samples import parcels, parcels_edited
from tests.fundamentals.samples.parcels import Order, Parcels


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def history(server: DevServer) -> WorkflowHistory:
    """Of a run that waited for four hours, and then took everything back."""
    return await history_of(server, {})


async def history_of(server: DevServer, signals: dict[str, list[None]]) -> WorkflowHistory:
    run = await run_workflow(
        Parcels,
        Order("A1"),
        server=server,
        signals=signals,
        workflows=[Parcels],
        steps=[parcels.take_money, parcels.send_parcel],
        fakes=[fake(parcels.give_back)],
    )
    return run.history


async def test_the_code_that_made_a_history_replays_it(history: WorkflowHistory):
    assert await assert_replayable(history, workflows=[Parcels]) == 1


async def test_files_folders_and_texts_are_read(history: WorkflowHistory, tmp_path: Path):
    text = history.to_json()
    file = tmp_path / "sched.parcel.1.json"
    file.write_text(text)
    every = [file, str(file), tmp_path, text, json.loads(text), history]
    assert await assert_replayable(every, workflows=[Parcels]) == len(every)


@pytest.mark.parametrize(
    ("edited", "said"),
    [
        (
            parcels_edited.ParcelsEdited,
            "the history has the step take_money (take_money/1), the code begins the step send_p",
        ),
        (
            parcels_edited.ParcelsThatDoNotWait,
            "the history has a wait of 4:00:00, the code begins the step send_parcel",
        ),
    ],
)
async def test_an_edit_that_does_not_fit_is_told_in_steps(
    history: WorkflowHistory, edited: type, said: str
):
    with pytest.raises(AssertionError) as failed:
        await assert_replayable([history], workflows=[edited])
    message = str(failed.value)
    assert said in message
    assert f"parcels@1 by-hand (run {history.run_id})" in message
    assert "give the workflow a new version, or ask ctx.patched()" in message


async def test_code_that_ends_before_the_history_does_is_told_so(server: DevServer):
    sent = await history_of(server, {"packed": [None]})
    with pytest.raises(AssertionError, match=r"has the step send_parcel .* the code ends there"):
        await assert_replayable([sent], workflows=[parcels_edited.ParcelsThatEndSooner])


async def test_every_history_that_does_not_replay_is_named(history: WorkflowHistory):
    with pytest.raises(AssertionError, match=r"2 of 2 histories do not replay"):
        await assert_replayable([history] * 2, workflows=[parcels_edited.ParcelsEdited])


async def test_a_workflow_that_is_not_there_is_named(history: WorkflowHistory):
    from tests.fundamentals.samples.together import Calendar

    with pytest.raises(AssertionError) as failed:
        await assert_replayable([history], workflows=[Calendar])
    assert str(failed.value) == (
        "1 of 1 histories are of workflows that are not here (parcels@1): import them or name "
        "them in workflows=; a class has to stay until its runs have ended"
    )


async def test_what_is_no_history_is_refused(tmp_path: Path):
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match=r"other\.json is no history"):
        await assert_replayable(tmp_path)
    with pytest.raises(ValueError, match="there is no history"):
        await assert_replayable([])


async def test_a_run_that_has_executed_nothing_yet_is_left_out(history: WorkflowHistory):
    waits = json.loads(history.to_json())
    waits["events"] = waits["events"][:1]  # so long as it waits to be begun again
    assert await assert_replayable([history, json.dumps(waits)]) == 1
    with pytest.raises(ValueError, match="none of these runs has executed anything yet"):
        await assert_replayable(waits)
