"""Rules, routes and dashboard name what the engine measures, and their own programs accept them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.telemetry.instruments import INSTRUMENTS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/monitoring"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "sched.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "grafana/dashboards/sched.json").read_text())
EXPRESSIONS = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.monitoring.yml").read_text())


def needs(program: str) -> pytest.MarkDecorator:
    """Leave a test out where Debian's package is missing; CI requires it."""
    missing = shutil.which(program) is None and not os.environ.get("REQUIRE_PROMETHEUS")
    return pytest.mark.skipif(missing, reason=f"needs {program}")


def ran(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_shows_metrics_that_exist_and_every_one_of_them():
    measured = {each.prometheus for each in INSTRUMENTS}
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    shown = set(re.findall(r"sched[:_][a-z0-9_:]+", " ".join(EXPRESSIONS)))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert shown <= measured | recorded
    shown |= {name for name in measured for rule in RULES if name in rule["expr"]}
    # Runs by schedule are off unless they are asked for.
    assert measured - shown == {"sched_schedule_runs_total"}


@needs("promtool")
def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path):
    rules: list[dict[str, Any]] = [
        {"record": f"dashboard:{number}", "expr": expression}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    ran("promtool", "check", "rules", file)


@needs("amtool")
def test_alertmanager_accepts_the_routes_and_knows_the_alerts_that_they_name():
    ran("amtool", "check-config", FOLDER / "alertmanager.yml")
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    routes = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())
    for rule in routes["inhibit_rules"]:
        named = re.findall(
            r"Schedule\w+", " ".join(rule["source_matchers"] + rule["target_matchers"])
        )
        assert named
        assert set(named) <= alerts
    severities = {rule["labels"]["severity"] for rule in RULES if "alert" in rule}
    assert severities == {"critical", "warning"}


def test_what_compose_mounts_exists_and_is_published_on_this_machine_only():
    for service in COMPOSE["services"].values():
        if "image" in service:
            assert re.fullmatch(r"[a-z0-9/-]+:v?[0-9.]+", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists()
                assert volume.endswith(":ro")
