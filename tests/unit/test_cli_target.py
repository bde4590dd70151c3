"""Which ledger, and which Web UI, a command means."""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace
from typing import cast

import pytest
import typer

from engine.cli.api import ACCESS_FILE, LocalAccess
from engine.cli.target import (
    UP_FILE,
    Target,
    find_target,
    keys_in_the_file,
    note_running,
    project_of_the_file,
    tags_in_the_file,
    target,
)
from engine.cli.up.up import _join
from engine.errors import LedgerRequired


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in ("DATABASE_URL", "UI_URL"):
        monkeypatch.delenv(f"SCHED_{name}", raising=False)
    for name in ("ADDRESS", "NAMESPACE", "PROFILE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)


def test_a_running_up_is_found_with_its_web_ui_and_only_its_owner_may_read_that(tmp_path):
    note_running(tmp_path, Target("postgresql://here/a", "space", "http://127.0.0.1:8233"))
    assert find_target(tmp_path) == Target("postgresql://here/a", "space", "http://127.0.0.1:8233")
    assert stat.S_IMODE((tmp_path / UP_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["SCHED_DATABASE_URL", "TEMPORAL_ADDRESS", "TEMPORAL_PROFILE"])
def test_a_worker_joins_the_up_of_its_folder_unless_the_environment_names_a_server(
    tmp_path, monkeypatch, name
):
    assert _join(tmp_path) is None
    up = Target("postgresql://here/a", "default", temporal="127.0.0.1:17233")
    note_running(tmp_path, up)
    monkeypatch.setenv(name, "postgresql://there/b")
    assert _join(tmp_path) is None
    monkeypatch.delenv(name)
    monkeypatch.setenv("SCHED_DATA_DIR", "elsewhere")
    with monkeypatch.context() as joining:
        joining.setenv("SCHED_DATABASE_URL", "")
        assert _join(tmp_path) == up
        assert os.environ["SCHED_DATABASE_URL"] == up.database_url, "its steps need it"
        assert os.environ["SCHED_DATA_DIR"] == str(tmp_path)


def test_the_token_of_up_outlives_it_in_a_file_of_its_owner_alone(tmp_path):
    first = LocalAccess.of(tmp_path)
    file = tmp_path / ACCESS_FILE
    assert LocalAccess.of(tmp_path) == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    second = LocalAccess.of(tmp_path)
    assert second.token != first.token, "others could have read it"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for text in ("", "{}", "[]", '{"token": "short", "code": "c"}', "half a fi"):
        file.write_text(text)
        assert len(LocalAccess.of(tmp_path).token) > 40


def test_the_environment_wins_and_has_no_links_to_the_web_ui_of_another_ledger(
    tmp_path, monkeypatch
):
    note_running(tmp_path, Target("postgresql://here/a", "default", "http://here"))
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://there/b")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "space")
    assert find_target(tmp_path) == Target("postgresql://there/b", "space")
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://here/a")
    found = find_target(tmp_path)
    assert found
    assert found.ui_url == "http://here"
    monkeypatch.setenv("SCHED_UI_URL", "https://temporal.internal/ui/")
    found = find_target(tmp_path)
    assert found
    assert found.ui_url == "https://temporal.internal/ui"


@pytest.mark.parametrize("noted", [None, "", "{}", "half a fi"])
def test_without_either_there_is_no_ledger_and_one_sentence_says_what_to_do(tmp_path, noted):
    if noted is not None:
        (tmp_path / UP_FILE).write_text(noted)
    assert find_target(tmp_path) is None
    with pytest.raises(LedgerRequired, match="set it, or run `sched up`"):
        target(tmp_path)


def test_in_an_empty_folder_the_hint_names_init_and_beside_a_file_it_does_not(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerRequired, match="`sched init` writes a project"):
        target(tmp_path)
    (tmp_path / "schedules.yaml").write_text("")
    with pytest.raises(LedgerRequired) as told:
        target(tmp_path)
    assert "init" not in str(told.value)


def test_a_place_has_no_password_in_it():
    assert Target("postgresql://me:secret@db:5432/app?sslmode=require", "n").place == "db:5432/app"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@db.example:5432/app?sslmode=require",
        "postgresql://db.example:5432/app?user=sched@db&password=s3cret",
    ],
)
def test_the_place_of_a_ledger_has_no_secret_in_it(url):
    assert Target(url, "default").place == "db.example:5432/app"


def test_the_namespace_is_read_from_the_variable_or_else_from_the_file_of_temporal(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SCHED_DATABASE_URL", "postgresql://there/b")
    monkeypatch.delenv("TEMPORAL_CONFIG_FILE", raising=False)
    monkeypatch.delenv("TEMPORAL_PROFILE", raising=False)
    assert target(tmp_path).namespace == "default"
    file = tmp_path / "config" / "temporalio" / "temporal.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[profile.default]\nnamespace = "of-the-file"\n')
    assert target(tmp_path).namespace == "of-the-file"
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "of-the-variable")
    assert target(tmp_path).namespace == "of-the-variable"


def test_keys_tags_and_the_project_of_the_file_complete_even_while_it_is_broken(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    context = cast("typer.Context", SimpleNamespace(params={}))
    assert keys_in_the_file(context) == []
    (tmp_path / "schedules.yaml").write_text(
        "project: 'shop'\n"
        "schedules:\n"
        "  - {key: a.b, tags: [money, night], everyMs: }\n"
        "  - key: c\n"
        "    tags:\n"
        "      - slow\n"
        "      - money\n"
        "    cron: '* * *\n"
        "  # - key: off\n"
        "  #   tags: [gone]\n"
    )
    assert keys_in_the_file(context) == ["a.b", "c"]
    assert tags_in_the_file(context) == ["money", "night", "slow"]
    assert project_of_the_file(context) == ["shop"]
