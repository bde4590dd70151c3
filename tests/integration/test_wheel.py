"""What a user installs: the engine, everything it reads, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_holds_the_engine_with_its_queries_and_nothing_else(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(tmp_path), str(ROOT)],
        check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"engine", "sched_engine-0.1.0.dist-info"}
    source = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "engine").rglob("*")
        if path.suffix in {".py", ".sql", ".typed", ".yaml", ".html", ".css", ".js", ".svg"}
    }
    assert source <= set(names)
    # Messages cite the pages, and `sched docs` prints them; pictures are for the web.
    pages = {f"engine/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in names if name.startswith("engine/docs/")} == pages
    assert len(pages) > 80
    assert any(name.endswith(".sql") for name in source)
