"""A folder that cannot take a file has none of it afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.errors import ArchiveFailed
from engine.ledger.fires import OldFire
from engine.runtime.retention.archive import Archive

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ROW = OldFire(
    id=1, version="7", project="default", series=1, bucket=1, fire_time=NOW, last_fire_time=NOW,
    windows=1, kind="window", definition_version=1, workflow_type="noop@1", task_queue="sched",
    status="completed", reason=None, timing="on_time", missed=0, merged_at=None, has_details=False,
    rested_since=NOW, detail='{"id": 1, "key": "a", "status": "completed"}',
)  # fmt: skip


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: what a full disk does to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_does_not_fit_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    archive = Archive(tmp_path, ledger_id="the-ledger", namespace="test")
    with room_for(20), pytest.raises(ArchiveFailed, match=r"File too large.*has room"):
        archive.write([(ROW, True)], NOW)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    written = archive.write([(ROW, True)], NOW)
    assert written is not None
    assert written.is_file()
