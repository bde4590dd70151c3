"""What docker-compose.yml promises, read off the file: order, isolation, versions."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from engine.embedded.binaries import temporal_cli
from engine.runtime.settings import Settings
from tests.acceptance.compose_file import COMPLETED, HEALTHY, PATH, ComposeFile
from tests.acceptance.fleet import ROOT

OURS = ("migrate", "worker", "apply")


@pytest.fixture
def file() -> ComposeFile:
    return ComposeFile.read()


def test_every_image_is_pinned_by_a_tag_and_named_without_a_registry(file):
    for service in file:
        name, _, tag = service.spec["image"].partition(":")
        assert tag[:1].isdigit(), service.name
        assert "." not in name, service.name


def test_nobody_waits_in_a_circle_and_whoever_needs_a_server_comes_after_it(file):
    order = file.order()
    for first, then in [
        ("postgres", "migrate"),
        ("migrate", "worker"),
        ("temporal-postgres", "temporal-schema"),
        ("temporal-schema", "temporal"),
        ("temporal", "temporal-namespace"),
        ("temporal-namespace", "worker"),
        ("migrate", "apply"),
    ]:
        assert order.index(first) < order.index(then)
        assert first in file[then].needs, f"{then} does not wait for {first}"


def test_a_job_is_waited_for_to_its_end_and_a_server_until_it_is_healthy(file):
    jobs, servers = file.awaited(COMPLETED), file.awaited(HEALTHY)
    assert jobs == {"migrate", "temporal-schema", "temporal-namespace"}
    assert servers == {"postgres", "temporal-postgres", "temporal"}
    for service in file:
        assert set(service.needs) <= jobs | servers
        job = service.name in jobs
        # A job that starts again has not ended, and a server that does not has gone.
        restart = "no" if job else "on-failure" if service.name == "apply" else "unless-stopped"
        assert service.spec["restart"] == restart, service.name
        assert not (job and "healthcheck" in service.spec), service.name
    for name in servers | {"worker"}:
        assert file[name].health, name


def test_the_two_guards_share_no_server_and_no_disk(file):
    ledger, temporal = file["postgres"], file["temporal-postgres"]
    assert file["temporal"].environment["POSTGRES_SEEDS"] == temporal.name
    assert file["temporal-schema"].environment["SQL_HOST"] == temporal.name
    for name in OURS:
        assert f"@{ledger.name}:" in file[name].environment["SCHED_DATABASE_URL"]
    assert {*ledger.mounts.values()}.isdisjoint(temporal.mounts.values())


def test_what_postgresql_writes_outlives_its_container(file):
    for name in ("postgres", "temporal-postgres"):
        # From 18 on the image refuses a volume at its data folder itself.
        assert file[name].mounts["/var/lib/postgresql"] in file.volumes


def test_only_temporal_and_its_web_ui_can_be_reached_and_only_from_this_machine(file):
    published = {each.name: each.spec["ports"] for each in file if "ports" in each.spec}
    assert published == {
        "temporal": ["127.0.0.1:7233:7233"],
        "temporal-ui": ["127.0.0.1:8233:8080"],
    }
    moved = ComposeFile.read(TEMPORAL_PORT="17233", TEMPORAL_UI_PORT="18233")
    assert moved["temporal"].spec["ports"] == ["127.0.0.1:17233:7233"]
    assert moved["temporal-ui"].spec["ports"] == ["127.0.0.1:18233:8080"]


def test_a_container_of_ours_has_no_privileges_and_writes_where_its_steps_are_told_to(file):
    for name in OURS:
        spec = file[name].spec
        assert spec["read_only"] is True
        assert spec["tmpfs"] == ["/tmp"]  # noqa: S108 - a path in a container
        assert spec["cap_drop"] == ["ALL"]
        assert spec["security_opt"] == ["no-new-privileges:true"]
        assert set(file[name].mounts) <= {file[name].environment.get("SCHED_DATA_DIR")}


def test_a_worker_may_take_longer_to_stop_than_its_steps_may_take_to_finish(file):
    worker = file["worker"]
    drain = Settings.from_environment(worker.environment).drain
    assert worker.patience.total_seconds() >= drain.total_seconds() + 5
    assert worker.spec["init"] is True, "process 1 ignores a signal it does not handle yet"


@pytest.mark.parametrize(("chosen", "form"), [({}, "text"), ({"SCHED_LOG_FORMAT": "json"}, "json")])
def test_workers_write_a_log_with_severities_in_the_form_that_is_chosen(chosen, form):
    worker = ComposeFile.read(**chosen)["worker"]
    assert Settings.from_environment(worker.environment).log_format == form


def test_three_workers_share_the_work(file):
    assert file["worker"].spec["deploy"]["replicas"] == 3


def test_a_password_can_be_replaced_in_one_place(file):
    assert file["worker"].environment["PGPASSWORD"] == "sched"
    chosen = {
        "SCHED_DB_PASSWORD": "s3/cr%t@",
        "SCHED_DB_OWNER_PASSWORD": "owner's",
        "SCHED_DB_ADMIN_PASSWORD": "admin",
        "TEMPORAL_DB_PASSWORD": "other",
    }
    file = ComposeFile.read(PATH, **chosen)
    made = file["postgres"].environment
    assert made["POSTGRES_PASSWORD"] == "admin"  # noqa: S105
    assert file["worker"].environment["PGPASSWORD"] == made["SCHED_DB_PASSWORD"] == "s3/cr%t@"
    assert file["migrate"].environment["PGPASSWORD"] == made["SCHED_DB_OWNER_PASSWORD"] == "owner's"
    assert file["temporal-postgres"].environment["POSTGRES_PASSWORD"] == "other"  # noqa: S105
    assert file["temporal-schema"].environment["SQL_PASSWORD"] == "other"  # noqa: S105
    assert file["temporal"].environment["POSTGRES_PWD"] == "other"  # noqa: S105


def test_the_owner_migrates_and_workers_have_neither_its_password_nor_the_administrators(file):
    users = {name: file[name].environment["SCHED_DATABASE_URL"].split("@")[0] for name in OURS}
    assert users == {
        "migrate": "postgresql://sched_owner",
        "worker": "postgresql://sched_worker",
        "apply": "postgresql://sched_worker",
    }
    made = file["postgres"].environment
    secrets = {made["POSTGRES_PASSWORD"], made["SCHED_DB_OWNER_PASSWORD"]}
    assert secrets.isdisjoint(file["worker"].environment.values())
    assert made["POSTGRES_USER"] not in {"sched_owner", "sched_worker"}


def test_the_roles_of_the_file_are_those_of_the_document(file):
    """With other passwords, and with a schema for the example."""
    (source,) = (at for to, at in file["postgres"].mounts.items() if to.endswith("/roles.sql"))
    script = re.sub(r"(?m)^(--|\\).*\n", "", (ROOT / source).read_text())
    script, _, example = script.partition("\n\n")
    made, *_ = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/deploy.md").read_text(), re.DOTALL)
    password = re.compile(r"PASSWORD \S+;")
    assert password.sub("", script).strip() == password.sub("", made).strip()
    assert example.strip() == "CREATE SCHEMA example AUTHORIZATION sched_worker;"


def test_workers_look_for_runs_where_the_namespace_is_made():
    file = ComposeFile.read(TEMPORAL_NAMESPACE="orders")
    made = file["temporal-namespace"].environment
    for name in OURS:
        environment = file[name].environment
        assert environment["TEMPORAL_NAMESPACE"] == made["TEMPORAL_NAMESPACE"] == "orders"
        assert environment["TEMPORAL_ADDRESS"] == made["TEMPORAL_ADDRESS"] == "temporal:7233"


def test_temporal_and_its_tools_are_of_the_version_that_the_tests_run(file):
    answer = subprocess.run(
        [temporal_cli(), "--version"], capture_output=True, text=True, check=True
    )
    (version,) = re.findall(r"Server (\d+\.\d+\.\d+)", answer.stdout)
    for name in ("temporal", "temporal-schema", "temporal-namespace"):
        assert file[name].spec["image"].endswith(f":{version}"), name


def test_temporal_is_given_the_settings_file_that_it_insists_on(file):
    temporal = file["temporal"]
    source = temporal.mounts[temporal.environment["DYNAMIC_CONFIG_FILE_PATH"]]
    content = yaml.safe_load((ROOT / source).read_text())
    assert content is None or isinstance(content, dict)


def test_both_schemas_of_temporal_are_made_and_brought_up_to_date(file, tmp_path):
    done, calls = _make_schema(file, tmp_path)
    assert done == 0
    assert [call[1:] for call in calls] == [
        [database, *step]
        for database, folder in [("temporal", "temporal"), ("temporal_visibility", "visibility")]
        for step in [
            ["create-database"],
            ["setup-schema", "--version", "0.0"],
            ["update-schema", "--schema-dir",
             f"/etc/temporal/schema/postgresql/v12/{folder}/versioned"],
        ]
    ]  # fmt: skip
    assert {call[0] for call in calls} == {"--database"}
    temporal = file["temporal"].environment
    assert {call[1] for call in calls} == {temporal["DBNAME"], temporal["VISIBILITY_DBNAME"]}


@pytest.mark.parametrize("step", ["create-database", "setup-schema", "update-schema"])
def test_a_schema_that_could_not_be_made_stops_everything_after_it(file, tmp_path, step):
    done, calls = _make_schema(file, tmp_path, fails_at=step)
    assert done != 0
    assert calls[-1][2] == step


def _make_schema(
    file: ComposeFile, folder: Path, *, fails_at: str = ""
) -> tuple[int, list[list[str]]]:
    """Run the job's script with a stand-in for the tool, which only Temporal's image has."""
    calls, tool = folder / "calls", folder / "temporal-sql-tool"
    calls.touch()
    tool.write_text(
        "#!/usr/bin/env python3\n"
        "import sys\n"
        f"open({str(calls)!r}, 'a').write(repr(sys.argv[1:]) + '\\n')\n"
        f"sys.exit({fails_at!r} in sys.argv)\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    service = file["temporal-schema"]
    environment = {**service.environment, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(service.command, env=environment, check=False)
    return done.returncode, [ast.literal_eval(line) for line in calls.read_text().splitlines()]


def test_the_file_fits_the_specification_of_compose():
    if not find_spec("check_jsonschema"):
        pytest.skip("the specification is in the package check-jsonschema, which is not installed")
    subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         str(PATH)],
        check=True,
    )  # fmt: skip


def test_docker_compose_reads_the_file_as_these_tests_do(file):
    for compose in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(compose[0]) and _version_of(compose) >= 2:
            break
    else:
        pytest.skip("neither `docker compose` nor `docker-compose` 2 is installed")
    answer = subprocess.run(
        [*compose, "--file", str(PATH), "config", "--format", "json"],
        capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(Path.home())},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr, "compose warns"
    read = json.loads(answer.stdout)["services"]
    assert set(read) == set(file.services)
    for service in file:
        its = read[service.name]
        # What compose prints can be read by compose again: there a dollar is two.
        assert [word.replace("$$", "$") for word in its["command"] or []] == service.command
        assert its.get("environment", {}) == service.environment
        needs = {name: how["condition"] for name, how in its.get("depends_on", {}).items()}
        assert needs == service.needs
        assert its["image"] == service.spec["image"]


def _version_of(compose: list[str]) -> int:
    answer = subprocess.run(
        [*compose, "version", "--short"], capture_output=True, text=True, check=False
    )
    major = answer.stdout.lstrip("v").partition(".")[0]
    return int(major) if answer.returncode == 0 and major.isdigit() else 0
