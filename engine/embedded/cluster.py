"""The folder of one PostgreSQL cluster: where it lies, who owns it, how it is made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from engine.embedded.account import Account
from engine.embedded.binaries import POSTGRES_MAJOR, postgres_bin
from engine.errors import EmbeddedError

SUPERUSER = "sched"
_OUTSIDE = (Path("/var/lib/sched-engine"), Path("/var/tmp/sched-engine"), Path("/tmp"))  # noqa: S108 - fresh names from mkdtemp only


@dataclass(frozen=True, slots=True)
class Cluster:
    """An initialised cluster that its account can reach."""

    data: Path
    programs: Path
    account: Account
    password: str


def open_cluster(home: Path, *, durable: bool) -> Cluster:
    """Return the cluster of a home, made at the first call.

    ``<home>/data`` is the cluster, ``<home>/password`` its superuser's password. A crash in
    the middle leaves nothing half-made: the cluster grows under another name.

    Raises:
        EmbeddedError: with the cure.
        OSError: a folder cannot be written.
    """
    data = home / "data"
    account = Account.of_postgres(data)
    programs = postgres_bin(account, home)
    if not data.exists():
        _initialise(home, programs, account, durable=durable)
    _check_major(data)
    try:
        password = (home / "password").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise EmbeddedError(
            f"the database in {home} has lost its file `password`",
            cure="restore the file, or move the folder away to begin with an empty database",
        ) from None
    return Cluster(data, programs, account, password)


def home_of(folder: Path) -> Path:
    """Return where the cluster of a data folder lies or would lie, without making anything.

    That is ``<folder>/postgres`` or, for root below a closed folder, a folder outside that
    the file ``<folder>/postgres.path`` names.
    """
    try:
        return Path((folder / "postgres.path").read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return folder / "postgres"


def make_home(folder: Path) -> Path:
    """Return the home of a data folder's cluster, made at the first call.

    Raises:
        EmbeddedError: with the cure.
        OSError: a folder cannot be written.
    """
    home = home_of(folder)
    if home != folder / "postgres":
        if not home.is_dir():
            # An empty ledger beside Temporal's full history must be somebody's decision.
            raise EmbeddedError(
                f"the database folder {home} named in {folder / 'postgres.path'} has gone",
                cure="restore it, or delete that file to begin with an empty database",
            )
        return home
    home.mkdir(exist_ok=True)
    account = Account.of_postgres(home / "data")
    if not account.other:
        return home
    home.chmod(0o755)
    if account.reaches(home):
        return home
    if (home / "data").exists():
        raise EmbeddedError(
            f"the user {account.name}, who owns the database, cannot enter {home}",
            cure="open the folders above it with chmod o+x, or choose another --data-dir",
        )
    outside = _outside(folder, account)
    pointer = folder / "postgres.path"
    pointer.with_suffix(".new").write_text(f"{outside}\n", encoding="utf-8")
    pointer.with_suffix(".new").replace(pointer)
    home.rmdir()
    return outside


def _outside(folder: Path, account: Account) -> Path:
    """Make a folder that the account can reach; never one that already exists."""
    name = hashlib.sha256(bytes(folder)).hexdigest()[:12]
    for base in _OUTSIDE:
        with contextlib.suppress(OSError):
            if not base.exists():
                base.mkdir(mode=0o755)
                base.chmod(0o755)
            if base.stat().st_uid != os.geteuid():
                continue
            home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
            home.chmod(0o755)
            if account.reaches(home):
                (home / "belongs-to").write_text(f"{folder}\n", encoding="utf-8")
                return home
            home.rmdir()
    raise EmbeddedError(
        f"the user {account.name}, who must run PostgreSQL, can reach no folder for it",
        cure="choose a --data-dir whose parent folders everybody may enter",
    )


def _initialise(home: Path, programs: Path, account: Account, *, durable: bool) -> None:
    password = home / "password"
    if not password.exists():
        _write_secret(password, account)
    unfinished = home / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    answer = account.run(
        [
            programs / "initdb",
            f"--pgdata={unfinished}",
            f"--username={SUPERUSER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
            *([] if durable else ["--no-sync"]),
        ]
    )
    if answer.returncode != 0:
        raise EmbeddedError(
            f"PostgreSQL could not make its folder {unfinished} "
            f"({' | '.join(answer.stderr.strip().splitlines()[-3:])})",
            cure="choose another --data-dir, or set SCHED_DATABASE_URL",
        )
    unfinished.replace(home / "data")


def _write_secret(path: Path, account: Account) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(24) + "\n")
    account.own(fresh)  # initdb reads it as that user
    fresh.replace(path)


def _check_major(data: Path) -> None:
    major = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    if major != POSTGRES_MAJOR:
        raise EmbeddedError(
            f"the database in {data} was made by PostgreSQL {major}, "
            f"this sched-engine brings {POSTGRES_MAJOR}",
            cure="use the sched-engine that made it, or choose another --data-dir",
        )
