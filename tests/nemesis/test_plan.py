from __future__ import annotations

from tests.nemesis.plan import BEGIN, plan


def test_a_seed_is_a_plan() -> None:
    assert plan(7, 300) == plan(7, 300) != plan(8, 300)


def test_a_longer_run_has_every_fault_and_every_verb() -> None:
    acts = plan(1, 1800)
    assert {act.kind for act in acts} == {
        *("kill", "stop", "leave", "cut", "hold", "delay", "drop_replies"),
        *("restart_fast", "restart_now", "stranger"),
        *("pause", "resume", "trigger", "backfill", "skip", "unskip", "cancel", "rerun", "edit"),
        *("remove", "return", "at", "repeat", "reschedule", "rename", "cancel_own"),
        *("dead_rerun", "dead_drop", "second", "flood"),
    }
    assert BEGIN <= acts[0].at <= acts[-1].at <= 1800 + 2
