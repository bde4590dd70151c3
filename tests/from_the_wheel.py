"""``python -m tests.from_the_wheel``: the fundamentals against the built wheel.

In a folder that has the tests and the example application but no source, and an environment in
which only the wheel can be ``engine``: an editable installation hides what a wheel lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("tests", "workflows", "activities", "docs", "schedules.yaml", "pyproject.toml")


def main() -> int:
    """Return pytest's exit code; arguments go to it."""
    with tempfile.TemporaryDirectory(prefix="sched-wheel-") as name:
        folder = Path(name)
        python = make_environment(folder / "venv", build_wheel(folder))
        home = folder / "home"
        home.mkdir()
        for needed in NEEDED:
            source = ROOT / needed
            (shutil.copytree if source.is_dir() else shutil.copy)(source, home / needed)
        programs = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"  # temporal
        environment = {**os.environ, "PATH": programs}
        environment.pop("PYTHONPATH", None)
        found = subprocess.run(
            [python, "-c", "import engine; print(engine.__file__)"],
            cwd=home, env=environment, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        if not found.startswith(str(folder)):
            raise SystemExit(f"engine is {found.strip()}, not the wheel's")
        arguments = ["-m", "pytest", "tests/fundamentals", "-p", "no:cacheprovider"]
        return subprocess.run(
            [python, *arguments, *sys.argv[1:]], cwd=home, env=environment, check=False
        ).returncode


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder and return it."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", folder, ROOT],
        check=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with this one's packages, less its editable ``engine``."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    # The folder alone: the .pth files in it, the editable engine's too, are not read.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps",
         "--no-index", "--ignore-installed", "--disable-pip-version-check", wheel],
        check=True,
    )  # fmt: skip
    return python


if __name__ == "__main__":
    sys.exit(main())
