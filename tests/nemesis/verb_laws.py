"""What must have come of the verbs: what was answered is so, and an error changed nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.nemesis.account import Account, Action, Definition, Row, Schedule, Verb
from tests.nemesis.violation import Violation, broken
from tests.nemesis.window_laws import TICK
from tests.nemesis.windows import windows

_ENDS_WITHIN = timedelta(seconds=60)
"""How long what was asked to end may take, once nothing is broken any more."""

_NOTED = {"pause", "trigger", "rerun", "drop", "at", "repeat", "reschedule", "rename"}
"""Verbs that always leave an action when they change something."""


def _actions(account: Account, verb: Verb) -> list[Action]:
    return [each for each in account.actions if each.by.partition("@")[0] == verb.by]


def _definitions(account: Account, verb: Verb) -> list[Definition]:
    return [each for each in account.definitions if each.applied_by.partition("@")[0] == verb.by]


def an_error_has_a_code(account: Account) -> Iterator[Violation]:
    """Whatever breaks: the answer is an error of the product, and it comes.

    A second run is begun by hand in Temporal, which may be away.
    """
    for verb in account.verbs:
        if (
            verb.verb != "second"
            and verb.outcome != "done"
            and not (verb.code or "").startswith("SCHEDULE_")
        ):
            yield broken(f"verb {verb.number} ended with {verb.code}", verb)


def an_error_changes_nothing(account: Account) -> Iterator[Violation]:
    for verb in account.verbs:
        if verb.outcome == "refused":
            done = [*_actions(account, verb), *_definitions(account, verb)]
            if done:
                yield broken(f"verb {verb.number} was refused, and did something", verb, done)


def a_verb_takes_effect_once(account: Account) -> Iterator[Violation]:
    """However its answer came: what was done under its name was done once, and is noted."""
    for verb in account.verbs:
        actions = _actions(account, verb)
        counted = Counter((each.verb, each.key, each.workflow_id) for each in actions)
        if verb.verb != "backfill" and any(number > 1 for number in counted.values()):
            yield broken(f"verb {verb.number} took effect more than once", verb, actions)
        if verb.outcome == "done" and not actions and _changed(verb):
            yield broken(f"verb {verb.number} was done, and nobody noted it", verb)


def _changed(verb: Verb) -> bool:
    """Whether the answer says that something is different now."""
    answer = verb.answer
    if verb.verb in _NOTED:
        return bool(answer.get("new", True))
    if verb.verb in {"skip", "unskip"}:
        return bool(answer["changed"])
    if verb.verb == "resume":
        return answer.get("before") is not None
    return verb.verb == "cancel" and bool(answer.get("asked") or answer.get("skipped"))


def a_request_runs_once(account: Account) -> Iterator[Violation]:
    """One request id is one row, and so is each answered rerun; no other was ever asked for."""
    asked = {
        f"sched:{verb.key}:manual:{verb.given['request_id']}": verb
        for verb in account.asked("trigger", done=False)
    }
    for verb in account.asked("trigger", "rerun"):
        row = account.row_of.get(verb.answer["fire"]["workflow_id"])
        if row is None:
            yield broken(f"verb {verb.number} was done, and has no row", verb)
        elif row.status != "skipped" and account.chain(row.workflow_id) is None:
            yield broken(f"{row.workflow_id} was asked for, and never ran", verb, row)
    noted = {each.workflow_id for each in account.actions}
    for row in account.rows:
        if row.kind == "manual" and row.workflow_id not in asked:
            yield broken(f"nobody asked for {row.workflow_id}", row)
        if row.kind == "rerun" and row.workflow_id not in noted:
            yield broken(f"nobody asked for {row.workflow_id}", row)
    answered = Counter(each.answer["fire"]["workflow_id"] for each in account.asked("rerun"))
    for name, number in answered.items():
        if number > 1:
            yield broken(f"{number} reruns were answered with {name}", account.row_of.get(name))


def a_cancel_ends_what_it_names(account: Account) -> Iterator[Violation]:
    healed = [each.ended for each in account.faults if each.ended]
    for verb in account.asked("cancel"):
        limit = max(verb.over, *healed, verb.over) + _ENDS_WITHIN
        for name in (*verb.answer["asked"], *verb.answer["already"]):
            row, chain = account.row_of.get(name), account.chain(name)
            if chain and (chain.close is None or chain.close > limit):
                yield broken(f"{name} was cancelled, and went on", verb, row, chain)
        for name in verb.answer["skipped"]:
            row, chain = account.row_of.get(name), account.chain(name)
            if chain and (row is None or row.timing != "backfill"):
                yield broken(f"{name} was given up, and ran", verb, row, chain)


_TO_BE_NAMED = ("user", "excluded", "dependency", "coalesced")


def a_backfill_fills_its_range(account: Account) -> Iterator[Violation]:
    """Windows of the range that had no run when it was asked for have one."""
    for verb in account.asked("backfill"):
        if _is_overruled(account, verb):
            continue
        definition = _in_force(account, verb.key, verb.sent)
        begin, end = (datetime.fromisoformat(verb.given[name]) for name in ("from", "to"))
        for moment in windows(definition.entry, begin - TICK, end) if definition else ():
            rows = [
                row
                for row in account.rows_of[verb.key]
                if row.is_window and row.fire_time <= moment <= row.last_fire_time
            ]
            if not any(_is_filled(account, row, verb) for row in rows):
                yield broken(f"{verb.key} at {moment} was not filled", verb, rows)


def _is_overruled(account: Account, backfill: Verb) -> bool:
    """Whether another verb may have ended it, or skipped what it began."""
    calm = account.calm.at if account.calm else account.ended_at
    for verb in account.verbs:
        if verb.outcome == "refused" or verb.over < backfill.sent or verb.sent > calm:
            continue
        if verb.key == backfill.key and verb.verb in {"pause", "cancel", "skip", "prune"}:
            return True
        edited = {each.key for each in _definitions(account, verb)}
        if verb.verb == "apply" and backfill.key in edited:
            return True
    return False


def _in_force(account: Account, key: str, moment: datetime) -> Definition | None:
    found = [each for each in account.versions[key] if each.applied_at <= moment]
    return found[-1] if found else None


def _is_filled(account: Account, row: Row, verb: Verb) -> bool:
    """Whether it ran; what was decided later, or has to be named, was not the range's to fill."""
    ran = account.chain(row.workflow_id) or row.status not in {"skipped", "expired", "rejected"}
    return bool(ran) or _to_be_named(row, verb) or row.decided_at > verb.sent


def _to_be_named(row: Row, backfill: Verb) -> bool:
    """Whether a backfill starts a window of this kind only where it is told to, and was not."""
    word = next((word for word in _TO_BE_NAMED if (row.reason or "").startswith(word)), None)
    return row.status == "skipped" and word is not None and word not in backfill.given["include"]


def what_was_declared_is_in_force(account: Account) -> Iterator[Violation]:
    for verb in account.asked("apply"):
        for key, when in verb.given["whens"].items():
            definition = _in_force(account, key, verb.over)
            said = definition and (definition.entry.get("everyMs") or definition.entry.get("cron"))
            if said != when and key not in verb.answer.get("refused", {}):
                yield broken(f"{key} was applied with {when}, and has {said}", verb, definition)
    for verb in account.asked("at", "reschedule", "repeat"):
        made = _definitions(account, verb)
        name = "everyMs" if verb.verb == "repeat" else "at"
        if len(made) != 1 or not _same(made[0].entry.get(name), verb.given[name]):
            yield broken(f"{verb.key} was asked for {verb.given[name]}", verb, made)


def _same(declared: object, asked: object) -> bool:
    if not isinstance(declared, str) or not isinstance(asked, str):
        return declared == asked
    apart = datetime.fromisoformat(declared) - datetime.fromisoformat(asked)
    return abs(apart) < timedelta(milliseconds=1)


def a_hold_lasts_until_it_is_lifted(account: Account) -> Iterator[Violation]:
    """In the calm each key is paused, or retired, as the last verb on it left it."""
    if account.calm is None:
        return
    for state in account.calm.schedules:
        paused, retired = state.paused_at is not None, state.retired_at is not None
        last = _last(account, state, "pause", "resume")
        if last and last.outcome == "done" and not retired:
            until = last.given.get("until")
            if last.verb == "resume" and paused:
                yield broken(f"{state.key} was resumed, and is paused", last, state)
            if last.verb == "pause" and not until and not paused:
                yield broken(f"{state.key} was paused, and is not", last, state)
        if state.origin == "file" and retired != _is_retired(account, state):
            yield broken(f"{state.key} is {'' if retired else 'not '}retired", state)


def _last(account: Account, state: Schedule, *verbs: str) -> Verb | None:
    """The last of these on a key; None where it cannot be told which took effect last."""
    assert account.calm
    found = [
        verb
        for verb in account.verbs
        if verb.verb in verbs and verb.key == state.key and verb.outcome != "refused"
        and verb.sent < account.calm.at
    ]  # fmt: skip
    if not found:
        return None
    last = max(found, key=lambda verb: verb.sent)
    unclear = any(verb.over > last.sent for verb in found if verb is not last)
    return None if unclear or last.over > account.calm.at else last


def _is_retired(account: Account, state: Schedule) -> bool:
    """By the log; where an answer was lost the ledger is believed."""
    assert account.calm
    retired = False
    for verb in account.verbs:
        if verb.sent > account.calm.at or verb.outcome == "refused":
            continue
        if verb.verb == "prune" and (verb.outcome != "done" or state.key in verb.answer["retired"]):
            retired = True if verb.outcome == "done" else state.retired_at is not None
        elif verb.verb == "apply" and state.key in verb.given["whens"]:
            retired = False if verb.outcome == "done" else state.retired_at is not None
    return retired


LAWS = (
    an_error_has_a_code,
    an_error_changes_nothing,
    a_verb_takes_effect_once,
    a_request_runs_once,
    a_cancel_ends_what_it_names,
    a_backfill_fills_its_range,
    what_was_declared_is_in_force,
    a_hold_lasts_until_it_is_lifted,
)
