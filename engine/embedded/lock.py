"""One owner per data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from engine.errors import EmbeddedError


class FolderLock:
    """An exclusive lock on a folder; the kernel releases it when the holder dies, however.

    The file ``lock`` in the folder holds the pid of its last holder and is never deleted:
    a second process may already have it open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def acquire(self) -> Self:
        """Create the folder where it is missing and take the lock.

        Raises:
            EmbeddedError: another process holds it, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except OSError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                raise unwritable(self.folder, error) from error
            raise EmbeddedError(
                f"another `sched up` (process {holder or 'unknown'}) uses the data folder "
                f"{self.folder}",
                cure="stop it or give this one another --data-dir",
            ) from None
        self._handle = handle
        return self

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def unwritable(path: Path, error: OSError) -> EmbeddedError:
    """Return the sentence for a folder that cannot be used."""
    return EmbeddedError(
        f"the data folder {path} cannot be written ({error.strerror or error})",
        cure="choose another with --data-dir, or make it writable for this user",
    )
