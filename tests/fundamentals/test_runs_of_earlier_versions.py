"""Runs that an earlier version of sched-engine began continue with this one.

``histories/`` has one folder for each module of samples, filled by ``replays.py``. A change of
sched-engine that makes a run do something else there would leave every open run of its users stuck.
From the tag ``v0.1.0`` on, histories are added and never recorded again: users have such runs.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from engine.testing import assert_replayable
from tests.fundamentals.replays import HISTORIES

FILES = sorted(HISTORIES.glob("*/*.json"))


@pytest.mark.parametrize("file", FILES, ids=[f"{each.parent.name}-{each.stem}" for each in FILES])
async def test_they_replay(file: Path):
    samples = importlib.import_module(f"tests.fundamentals.samples.{file.parent.name}")
    assert await assert_replayable(file, workflows=samples.ALL) == 1
