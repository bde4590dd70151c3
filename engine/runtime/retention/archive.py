"""Archive of old rows.

Old rows as compressed JSON Lines in a folder. The format is in docs/retention.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from engine.errors import ArchiveFailed
from engine.ledger.fires import OldFire

_CURE = "see that the folder exists, may be written and has room; nothing is deleted meanwhile"


class Archive:
    """A folder that keeps what leaves one ledger.

    Args:
        folder: must exist: one that is not mounted today is not made anew.
        ledger_id: goes into every line, because several ledgers may share a folder.
        namespace: names the folder below.
    """

    def __init__(self, folder: Path, *, ledger_id: str, namespace: str) -> None:
        self._folder, self._ledger_id = folder, ledger_id
        self._below = quote(namespace, safe="").replace(".", "%2E")

    def write(self, rows: Iterable[tuple[OldFire, bool]], at: datetime) -> Path | None:
        """Write rows and read them back; None when there are none. Blocks.

        The same rows on the same day have the same name, so that doing it again changes nothing.

        Args:
            rows: each with whether it is removed from the ledger, or merged into a range.
            at: the day whose folder it goes to.

        Raises:
            ArchiveFailed: it is not certain that the rows are there.
        """
        lines = [self._line(row, removed) for row, removed in rows]
        if not lines:
            return None
        text = "".join(lines).encode()
        name = f"{hashlib.sha256(text).hexdigest()[:24]}.jsonl.gz"
        try:
            if not self._folder.is_dir():
                raise FileNotFoundError(f"{self._folder} is no folder")
            folder = self._folder / self._below / f"{at:%Y-%m-%d}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            _write(path, gzip.compress(text, mtime=0))
            same = gzip.decompress(path.read_bytes()) == text
            for made in (folder, folder.parent, self._folder):
                _sync(made)
        except (OSError, EOFError) as error:
            raise ArchiveFailed(f"the archive {self._folder}: {error}", cure=_CURE) from error
        if not same:
            raise ArchiveFailed(
                f"the archive: {path} reads back otherwise than written", cure=_CURE
            )
        return path

    def _line(self, row: OldFire, removed: bool) -> str:  # noqa: FBT001 - it goes with the row
        about = {"ledger": self._ledger_id, "removed": removed, **json.loads(row.detail)}
        return json.dumps(about, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write(path: Path, data: bytes) -> None:
    """Write a whole file or none."""
    number, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o640)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _sync(folder: Path) -> None:
    """Let a new name outlive a crash."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def leaving(groups: Sequence[Sequence[OldFire]]) -> list[OldFire]:
    """Return the rows whose details a merge ends: not those that are ranges by a merge already."""
    return [row for group in groups for row in group if row.merged_at is None]
