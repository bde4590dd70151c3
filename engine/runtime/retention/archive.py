"""Archive of old rows: compressed JSON Lines in a folder (format: docs/retention.md)."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from engine.errors import ArchiveFailed
from engine.ledger import OldFire

_HINT = "see that the folder exists, may be written and has room; nothing is deleted meanwhile"


class Archive:
    """A folder with the rows that left one ledger.

    Args:
        folder: must exist; an unmounted folder must not be created on the local disk.
        ledger_id: written to every line, because several ledgers may share a folder.
        namespace: the name of the subfolder.
    """

    def __init__(self, folder: Path, *, ledger_id: str, namespace: str) -> None:
        self._folder, self._ledger_id = folder, ledger_id
        self._below = quote(namespace, safe="").replace(".", "%2E")

    def write(self, rows: Iterable[tuple[OldFire, bool]], at: datetime) -> Path | None:
        """Write rows and read them back; return None if there are none. Blocks.

        The write is idempotent: the same rows on the same day go to the same file.

        Args:
            rows: each with whether it is removed from the ledger, rather than merged into a range.
            at: the day of the folder.

        Raises:
            ArchiveFailed: it is not certain that the rows are stored.
        """
        lines = [self._line(row, removed=removed) for row, removed in rows]
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
            raise ArchiveFailed(f"the archive {self._folder}: {error}", hint=_HINT) from error
        if not same:
            raise ArchiveFailed(
                f"the archive: {path} reads back differently from what was written", hint=_HINT
            )
        return path

    def _line(self, row: OldFire, *, removed: bool) -> str:
        about = {"ledger": self._ledger_id, "removed": removed, **json.loads(row.detail)}
        return json.dumps(about, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
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
    """Sync a folder, so that its new entries survive a crash."""
    if sys.platform == "win32":  # it opens no folders
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
