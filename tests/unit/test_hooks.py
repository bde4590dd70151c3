"""``hooks:`` of a file: each problem at its place, and neither secrets nor paths in a message."""

# ruff: noqa: S106 - names of variables, no secrets

from __future__ import annotations

import pytest

from engine.errors import ScheduleError, ScheduleFileError
from engine.schedules import Hook, load_schedules
from engine.schedules.loader.loader import NamedText, load_several

SCHEDULES = "schedules: [{key: a, workflow: w, everyMs: 1000}]\n"
GOOD = "{url: https://a.example/secret-path, secret: '${env:HOOK}'}"


def hooks(text: str) -> tuple[Hook, ...]:
    return load_schedules(f"hooks: {text}\n{SCHEDULES}").hooks


def problems(text: str) -> list[str]:
    with pytest.raises(ScheduleFileError) as error:
        hooks(text)
    assert "hunter2" not in str(error.value)
    assert "secret-path" not in str(error.value)
    return [
        f"{each.line}:{each.column} {each.message}; {each.hint}" for each in error.value.problems
    ]


def test_a_hook_gets_everything_by_default():
    (hook,) = hooks(f"[{GOOD}]")
    assert hook == Hook("https://a.example/secret-path", "HOOK", ("schedule.*",), ())
    assert str(hook) == "https://a.example/… gets schedule.*"
    assert hook.label.startswith("a.example#")


def test_patterns_name_events_and_keys():
    more = "events: [schedule.*.arrived, '*.failed'], keys: [billing.*]"
    (hook,) = hooks(f"[{GOOD[:-1]}, {more}}}]")
    assert hook.events == ("schedule.*.arrived", "*.failed")
    assert str(hook).endswith("gets schedule.*.arrived, *.failed of billing.*")


def test_json_declares_them_too():
    text = (
        '{"hooks": [{"url": "https://a.example", "secret": "${env:HOOK}"}],'
        ' "schedules": [{"key": "a", "workflow": "w", "everyMs": 1000}]}'
    )
    assert len(load_schedules(text, "schedules.json").hooks) == 1


def test_no_hooks_are_none():
    assert hooks("") == hooks("[]") == load_schedules(SCHEDULES).hooks == ()


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("7", "1:8", "hooks is 7; write [{url:"),
        ("[7]", "1:9", "hook 1 is no mapping"),
        ("[{secret: '${env:A}'}]", "1:9", "hook 1 has no url"),
        ("[{url: https://a.example}]", "1:9", "hook 1 has no secret"),
        (
            "[{url: https://a.example, secret: hunter2}]",
            "1:34",
            "the secret of hook 1 is not the name of a variable; write ${env:NAME}",
        ),
        ("[{url: 'ftp://a.example', secret: '${env:A}'}]", "1:10", "is neither http nor https"),
        ("[{url: 'https://u:hunter2@a', secret: '${env:A}'}]", "1:10", "url of hook 1 has a user"),
        ("[{url: 'https://a#hunter2', secret: '${env:A}'}]", "1:10", "has a fragment"),
        ("[{url: 'https://a/\\x', secret: '${env:A}'}]", "1:10", "is no address"),
        ("[{url: 'https://', secret: '${env:A}'}]", "1:10", "is no address"),
        ('[{url: "https://a/\\r\\nHost: b", secret: "${env:A}"}]', "1:10", "is no address"),
        (f"[{GOOD[:-1]}, events: [schedule.arived]}}]", "1:69", "did you mean arrived?"),
        (f"[{GOOD[:-1]}, events: [arrived]}}]", "1:69", "write schedule.arrived"),
        (f"[{GOOD[:-1]}, events: []}}]", "1:69", "has 0 patterns"),
        (f"[{GOOD[:-1]}, keys: [B]}}]", "1:69", "write keys, with * for any text"),
        (f"[{GOOD[:-1]}, evens: [a]}}]", "1:69", "did you mean events?"),
        (f"[{GOOD}, {GOOD}]", "1:70", "hook 2 has the url of another one"),
    ],
)
def test_each_mistake_is_a_problem_at_its_place(text: str, place: str, words: str):
    (problem,) = problems(text)
    assert problem.startswith(place)
    assert words in problem


def test_files_of_a_project_share_no_hook():
    text = f"hooks: [{GOOD}]\n{SCHEDULES}"
    texts = [NamedText("a.yaml", text), NamedText("b.yaml", text.replace("key: a", "key: b"))]
    with pytest.raises(ScheduleFileError, match=r"has the url of one in a\.yaml"):
        load_several(texts, "folder", open_ics=lambda _: None)
    texts[1] = NamedText("b.yaml", texts[1].text.replace("secret-path", "other"))
    assert len(load_several(texts, "folder", open_ics=lambda _: None).hooks) == 2


def test_an_application_gets_the_same_refusals():
    with pytest.raises(ScheduleError, match=r"write \$\{env:NAME\}") as error:
        Hook.of("https://a.example", secret="hunter2")
    assert "hunter2" not in str(error.value)
    with pytest.raises(ScheduleError, match="did you mean failed"):
        Hook.of("https://a.example", secret="${env:A}", events=["schedule.faild"])
