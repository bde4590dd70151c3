"""The image: what the Dockerfile says, done by hand, and run as the user it names.

No container engine is needed. The files, the lock, the user and the command are read from the
Dockerfile, and the packages come from this environment, which was made of the same hashes. What
remains unproved is the base image.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from temporalio.client import Client

from engine.embedded import free_port
from tests.acceptance.fleet import ROOT, Books
from tests.servers import Temporal, shared_folder

UID = 1000
ELSEWHERE = {"colorama"}  # in the lock for Windows only
LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
STEPS = [line for line in LINES if line and not line.startswith("#")]
LAST = max(number for number, step in enumerate(STEPS) if step.startswith("FROM "))


def _steps(word: str, *, final: bool = True) -> list[str]:
    """The arguments of every such instruction, of the final stage or of the one before it."""
    stage = STEPS[LAST:] if final else STEPS[:LAST]
    return [step.removeprefix(word).strip() for step in stage if step.startswith(f"{word} ")]


def _pins(name: str) -> dict[str, set[str]]:
    """``name==version`` of a lock file, and the hashes it allows."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    pins = {}
    for line in filter(None, text.splitlines()):
        requirement, *hashes = line.split("--hash=")
        pins[requirement.partition(";")[0].strip()] = {each.strip() for each in hashes}
    return pins


def _names(pins: dict[str, set[str]]) -> set[str]:
    return {pin.partition("==")[0] for pin in pins}


def test_the_image_runs_as_an_ordinary_user_and_hears_signals():
    assert _steps("USER") == [f"{UID}:{UID}"]
    assert _steps("STOPSIGNAL") == ["SIGTERM"]
    # Lists, not shell lines: a shell in between would keep the signal for itself.
    assert json.loads(*_steps("ENTRYPOINT")) == ["sched"]
    assert json.loads(*_steps("CMD")) == ["worker"]


def test_both_stages_begin_with_the_same_pinned_python_that_the_project_supports():
    (build,), (final,) = _steps("FROM", final=False), _steps("FROM")
    assert build == f"{final} AS build"
    (version,) = re.findall(r"^python:(3\.\d+)-slim-\w+$", final)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_whatever_the_dockerfile_copies_exists_and_nothing_else_is_sent():
    copied = {
        source
        for final in (False, True)
        for step in _steps("COPY", final=final)
        if not step.startswith("--from=")
        for source in step.split()[:-1]
    }
    assert [source for source in copied if not (ROOT / source).exists()] == []
    everything, *sent = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert everything == "*"
    assert sent.pop() == "**/__pycache__"
    assert {line.removeprefix("!") for line in sent} == {s.removeprefix("./") for s in copied}
    assert not any(fnmatch.fnmatch(".env", line.removeprefix("!")) for line in sent)


@pytest.mark.parametrize("name", ["requirements-core.lock", "requirements-build.lock"])
def test_the_image_gets_the_very_files_that_were_tested(name):
    tested = _pins("requirements.lock")
    for pin, hashes in _pins(name).items():
        assert hashes, pin
        assert hashes == tested.get(pin), f"{pin} is not in requirements.lock: make lock"


def test_the_image_gets_the_core_and_every_extra_of_a_worker_and_the_api():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    core, build = _names(_pins("requirements-core.lock")), _names(_pins("requirements-build.lock"))
    assert {_name(each) for each in project["project"]["dependencies"]} <= core
    assert {_name(each) for each in project["build-system"]["requires"]} <= build
    extras = project["project"]["optional-dependencies"]
    for extra in ("api", "calendars", "otlp", "webhooks"):
        assert {_name(each) for each in extras.pop(extra)} <= core
    rest = {_name(each) for extra in extras.values() for each in extra} - {"sched-engine"}
    assert core.isdisjoint(rest)


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


@dataclass(frozen=True)
class Image:
    """What the Dockerfile makes, in a folder."""

    bin: Path
    app: Path
    temporary: Path

    async def run(self, *command: str, **environment: str) -> asyncio.subprocess.Process:
        """Start a command as the image's user, with nothing of ours in its environment."""
        settings = dict(
            pair.split("=", 1) for step in _steps("ENV") for pair in step.split() if "=" in pair
        )
        settings["PATH"] = f"{self.bin}:/usr/bin:/bin"
        other: dict[str, Any] = (
            {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        return await asyncio.create_subprocess_exec(
            *command, cwd=self.app, **other,
            env={**settings, "TMPDIR": str(self.temporary), "HOME": "/nonexistent", **environment},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with shared_folder() as folder:
        venv, app, temporary = folder / "venv", folder / "app", folder / "tmp"
        for made in (app, temporary):
            made.mkdir()
        temporary.chmod(0o1777)
        _install(venv, folder / "dist")
        for step in _steps("COPY"):
            *sources, _ = step.split()
            if not sources[0].startswith("--from="):
                for source in sources:
                    _copy(ROOT / source, app / Path(source).name)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(app), str(venv)], check=True)
        yield Image(venv / "bin", app, temporary)
        subprocess.run(["chmod", "-R", "u+w", str(app), str(venv)], check=True)


def _install(venv: Path, dist: Path) -> None:
    """Do what the build stage does; the locked packages come from where they are tested."""
    subprocess.run([_python(), "-m", "venv", "--without-pip", str(venv)], check=True)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = venv / "lib" / python / "site-packages"
    for name in _names(_pins("requirements-core.lock")) - ELSEWHERE:
        for file in metadata.distribution(name).files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), target)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(dist), str(ROOT)],
        check=True,
    )
    into = [*pip, "--python", str(venv / "bin" / "python"), "install", "--no-index", "--no-deps"]
    subprocess.run([*into, *map(str, dist.iterdir())], check=True)


def _python() -> str:
    """This Python, or the same version of another that the image's user may run.

    Ours may lie in a folder that is closed to that user.
    """
    for found in (sys.executable, "/usr/bin/python3"):
        python = Path(found).resolve()
        asked = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
        if python.exists() and (os.geteuid() or all(map(_open_to_all, python.parents))):
            answer = subprocess.run(asked, capture_output=True, text=True, check=True)
            if answer.stdout.split() == [*map(str, sys.version_info[:2])]:
                return str(python)
    pytest.skip(f"no Python {sys.version_info[:2]} here that user {UID} may run")


def _open_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


async def _output(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return output.decode()


@pytest.mark.slow
@pytest.mark.prove
async def test_a_worker_of_the_image_runs_the_shipped_schedules_and_drains_on_the_stop_signal(
    image: Image, temporal: Temporal, client: Client, database_url: str
):
    command = [*json.loads(*_steps("ENTRYPOINT")), *json.loads(*_steps("CMD"))]
    target = {
        "TEMPORAL_ADDRESS": temporal.address,
        "TEMPORAL_NAMESPACE": client.namespace,
        "SCHED_DATABASE_URL": database_url,
        "SCHED_HTTP_PORT": str(free_port()),
    }
    for step in _steps("RUN"):
        if step.startswith("["):
            check = await image.run(*json.loads(step))
            said = await _output(check)
            assert check.returncode == 0, said
    process = await image.run(*command, **target)
    connection = await asyncpg.connect(database_url)
    try:
        await Books(connection, client).until_fired(["heartbeat"], 1, timeout=60)
        health = await image.run("python", str(image.app / "health.py"), **target)
        assert (await _output(health), health.returncode) == ("", 0)
        process.send_signal(getattr(signal, *_steps("STOPSIGNAL")))
        said = await _output(process)
        assert process.returncode == 0, said
        assert "draining" in said
    finally:
        await connection.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
    written = [*image.temporary.rglob("*")]
    assert not written, "it needs more than a read-only root"
