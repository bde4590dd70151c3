"""The Kubernetes manifests are valid, need no rights, and name what the engine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine.cli.app import MODULES
from engine.runtime.settings import NAMES

FOLDER = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
RESOURCES = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text())
]
NOT_OURS = {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "PGPASSWORD"}


def pods() -> Iterator[dict[str, Any]]:
    return (each["spec"]["template"] for each in RESOURCES if "template" in each.get("spec", {}))


def containers() -> Iterator[dict[str, Any]]:
    return (container for pod in pods() for container in pod["spec"]["containers"])


@pytest.mark.parametrize("document", RESOURCES, ids=lambda each: each["kind"])
def test_a_manifest_is_valid_and_has_no_unknown_field(document):
    kubernetes_validate.validate(document, "1.31", strict=True)


def test_every_command_and_every_variable_exists():
    given = {
        line.partition("=")[0]
        for path in FOLDER.glob("*.env.example")
        for line in path.read_text().splitlines()
    }
    given |= {
        literal.partition("=")[0]
        for generator in KUSTOMIZATION["configMapGenerator"]
        for literal in generator.get("literals", ())
    }
    for container in containers():
        assert container["args"][0] in MODULES
        given |= {variable["name"] for variable in container.get("env", ())}
    assert given - NOT_OURS <= NAMES


def test_what_a_container_refers_to_is_generated_or_declared():
    made = {
        each["name"]
        for kind in ("configMapGenerator", "secretGenerator")
        for each in KUSTOMIZATION[kind]
    }
    for container in containers():
        for source in container["envFrom"]:
            (reference,) = source.values()
            assert reference["name"] in made
    for pod in pods():
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        for volume in volumes.values():
            assert volume.get("configMap", {"name": "schedules"})["name"] in made
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
    for generator in KUSTOMIZATION["configMapGenerator"]:
        assert all((FOLDER / name).exists() for name in generator.get("files", ()))


def test_workers_have_no_rights_and_not_the_password_of_the_owner():
    for pod in pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["automountServiceAccountToken"] is False
    for container in containers():
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        owners = {"secretRef": {"name": "ledger-owner"}} in container["envFrom"]
        assert owners == (container["name"] == "migrate")


def test_what_runs_on_writes_a_log_that_can_be_filtered():
    logs = {
        container["args"][0]: variable["value"]
        for container in containers()
        for variable in container.get("env", ())
        if variable["name"] == "SCHED_LOG_FORMAT"
    }
    assert logs == {"worker": "json", "watch": "json"}


def test_a_worker_is_not_killed_while_it_drains_and_an_outage_restarts_none():
    (worker,) = (each for each in containers() if each["name"] == "worker")
    assert worker["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert worker["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (port,) = worker["ports"]
    (declared,) = (each for each in worker["env"] if each["name"] == "SCHED_HTTP_PORT")
    assert declared["value"] == str(port["containerPort"])
    (pod,) = (each for each in pods() if each["spec"]["containers"][0] is worker)
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 20 + 10  # SCHED_DRAIN, and a reserve
