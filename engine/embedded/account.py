"""Who PostgreSQL runs as: never root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EmbeddedError

ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}  # nothing of the user's
_ORDINARY = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine; ``other`` when it is not the one this process runs as."""

    name: str
    uid: int
    gid: int
    other: bool

    @classmethod
    def of_postgres(cls, data: Path) -> Account:
        """Return who runs the server whose data lie in (or will come to) this folder.

        We ourselves; but PostgreSQL refuses root, so for root the folder's owner, at first
        ``nobody``.

        Raises:
            EmbeddedError: this machine has no suitable user, or we may not use the folder.
        """
        try:
            owner: int | None = data.stat().st_uid
        except FileNotFoundError:
            owner = None
        if os.geteuid() == 0:
            return cls._named(owner) if owner else cls._named(_ORDINARY)
        if owner not in (None, os.geteuid()):
            raise EmbeddedError(
                f"the database in {data} belongs to another user",
                cure="run as that user or choose another --data-dir",
            )
        return cls._named(os.geteuid())

    @classmethod
    def _named(cls, who: int | str) -> Account:
        try:
            entry = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
        except KeyError:
            # PostgreSQL asks for the user's name and gives up without one.
            raise EmbeddedError(
                f"this machine's user list has no entry for {who}, and PostgreSQL needs one",
                cure="add it to /etc/passwd or set SCHED_DATABASE_URL",
            ) from None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, other=entry.pw_uid != os.geteuid())

    @property
    def ids(self) -> tuple[int, int] | None:
        """What a child process must become; None when it is that already."""
        return (self.uid, self.gid) if self.other else None

    def run(self, argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run a short program as this user and return what came of it."""
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=ENVIRONMENT,
            user=self.uid if self.other else None,
            group=self.gid if self.other else None,
            extra_groups=[] if self.other else None,
            umask=0o077,
            start_new_session=True,
        )

    def reaches(self, folder: Path) -> bool:
        """Whether this user can enter the folder.

        Raises:
            EmbeddedError: this process may not act as that user at all.
        """
        try:
            return self.run(["/bin/sh", "-c", 'cd -- "$0"', folder]).returncode == 0
        except PermissionError as error:  # root without the right, as in some containers
            raise EmbeddedError(
                f"PostgreSQL refuses to run as root, and this process may not become the user "
                f"{self.name} ({error.strerror})",
                cure="start it as an ordinary user, or set SCHED_DATABASE_URL",
            ) from None

    def own(self, path: Path) -> None:
        """Hand a file or an empty folder to this user."""
        if self.other:
            os.chown(path, self.uid, self.gid)
