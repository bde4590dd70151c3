"""SCHED_SETUP: a team's own options, and one sentence for each way in which they are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from temporalio.converter import DataConverter

from engine.cli.app import run
from engine.errors import SetupInvalid
from engine.runtime import Setup
from tests.encrypted_team import Mirror

MODULE = """
from engine.runtime import Setup

def good(): return Setup(api_key="k", max_concurrent_activities=3)
def wrong(): return {"api_key": "k"}
def misspelt(): return Setup(payload_codex=None)
def raising(): raise RuntimeError("no key file")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "our_setup.py").write_text(MODULE)
    (tmp_path / "broken_setup.py").write_text("import there_is_no_such_thing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("our_setup", None)


def test_the_options_go_to_the_client_and_to_the_worker():
    setup = Setup.load("our_setup:good")
    assert setup.client_options() == {"api_key": "k"}
    assert setup.worker_options() == {"max_concurrent_activities": 3}


def test_without_a_setup_every_option_is_the_sdks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SCHED_SETUP", raising=False)
    assert Setup.load() == Setup()
    assert Setup().client_options() == Setup().worker_options() == {}


def test_the_codec_joins_the_converter():
    codec = Mirror()
    assert Setup(payload_codec=codec).client_options()["data_converter"].payload_codec is codec
    with pytest.raises(SetupInvalid, match="two codecs"):
        Setup(payload_codec=codec, data_converter=DataConverter(payload_codec=codec))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("our_setup", "the setup is 'our_setup'; write module:function"),
        ("our_setups:good", "there is no module our_setups here; run in the folder"),
        ("broken_setup:good", "importing broken_setup failed: ModuleNotFoundError"),
        ("our_setup:godo", "has no function 'godo'; did you mean good?"),
        ("our_setup:wrong", "returned dict; return an engine.runtime.Setup"),
        ("our_setup:misspelt", "no option 'payload_codex'; did you mean payload_codec?"),
        ("our_setup:raising", "failed: RuntimeError: no key file; mend the function"),
    ],
)
def test_a_setup_that_gives_no_options_ends_the_worker_with_two_and_one_sentence(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["worker", "--setup", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sched: SCHEDULE_SETUP_INVALID: ")
    assert told in line
