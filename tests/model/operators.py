"""What operators and applications may do, one rule each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from engine.schedules.model import CatchUp
from tests.model.base import Base, keys, seeds
from tests.model.drawn import catch_ups, causes, entries, overlaps, policies, whens
from tests.model.moments import windows
from tests.model.row_laws import GHOST
from tests.model.server import SECOND

reasons = st.sampled_from([None, "because"])


class Operators(Base):
    """Verbs: they come at any moment, while replicas are at work."""

    @rule(seed=seeds, key=keys, entry=entries())
    def edit(self, seed: int, key: str, entry: dict[str, Any]) -> None:
        self.go("edit", seed)
        self.world.file[key] = entry
        if self.chance.random() < 0.2:
            self.world.file[GHOST] = {
                "everyMs": self.chance.choice([20_000, 30_000]), "workflow": "nobody",
            }  # fmt: skip
        self.world.ask(self.world.apply)
        self.then()

    @rule(seed=seeds, key=keys, change=st.one_of(overlaps, st.just({"enabled": False}),
                                                 st.just({"enabled": True}), whens))  # fmt: skip
    def amend(self, seed: int, key: str, change: dict[str, Any]) -> None:
        self.go("amend", seed)
        entry = dict(self.world.file.get(key, {"everyMs": 10_000}))
        if change.keys() & {"everyMs", "cron", "at"}:
            for name in ("everyMs", "offsetMs", "cron", "timezone", "at", "exclude"):
                entry.pop(name, None)
        entry.pop("cancelGrace", None)
        entry.pop("maxQueued", None)
        entry.pop("maxConcurrentRuns", None)
        self.world.file[key] = {**entry, **change}
        self.world.ask(self.world.apply)
        self.then()

    @rule(seed=seeds, key=keys)
    def remove(self, seed: int, key: str) -> None:
        self.go("remove", seed)
        self.world.file.pop(key, None)
        self.world.ask(lambda: self.world.apply(prune=True))
        self.then()

    @rule(seed=seeds, key=keys, until=st.sampled_from([None, None, 5, 60, 1000]), reason=reasons)
    def pause(self, seed: int, key: str, until: int | None, reason: str | None) -> None:
        self.go("pause", seed)
        end = None if until is None else self.world.now() + until * SECOND
        self.world.ask(lambda: self.service.pause(key, reason=reason, until=end))
        self.then()

    @rule(seed=seeds, key=keys, catch_up=st.one_of(st.none(), catch_ups))
    def resume(self, seed: int, key: str, catch_up: dict[str, Any] | None) -> None:
        self.go("resume", seed)
        policy = None if catch_up is None else CatchUp(**catch_up)
        if catch_up is not None:
            self.world.account.on_resume(key)
        self.world.ask(lambda: self.service.resume(key, catch_up=policy))
        self.then()

    @rule(seed=seeds, key=keys, request=st.sampled_from([None, "one", "two"]),
          overlap=st.one_of(st.none(), policies))  # fmt: skip
    def trigger(self, seed: int, key: str, request: str | None, overlap: Any) -> None:
        self.go("trigger", seed)
        request = request or f"r{self.chance.randrange(10**6)}"
        for _ in range(self.chance.choice([1, 2])):
            self.world.ask(lambda: self.service.trigger(key, request_id=request, overlap=overlap))
        self.then()

    @rule(seed=seeds, key=keys, back=st.booleans())
    def skip(self, seed: int, key: str, back: bool) -> None:  # noqa: FBT001 - drawn
        self.go("skip", seed)
        state = self.world.account.states.get(key)
        if state is not None:
            entry = self.world.account.eras[key][-1].entry
            now = self.world.now()
            coming = windows(entry, now - 30 * SECOND, now + timedelta(hours=1))[:6]
            if coming:
                act = self.service.unskip if back else self.service.skip
                at = self.chance.choice(coming)
                self.world.ask(lambda: act(key, at))
        self.then()

    @rule(seed=seeds, key=keys, overlap=st.one_of(st.none(), policies))
    def rerun(self, seed: int, key: str, overlap: Any) -> None:
        self.go("rerun", seed)
        fires = [fire for fire in self.world.account.fires.values()
                 if fire.key == key and fire.kind == "window"]  # fmt: skip
        if fires:
            fire = self.chance.choice(fires)
            bucket, series = fire.bucket, fire.series
            self.world.ask(lambda: self.service.rerun(key, bucket, series=series, overlap=overlap))
        self.then()

    @rule(seed=seeds, key=keys, back=st.sampled_from([30, 120, 400, 2000]),
          overlap=st.sampled_from([None, "allow", "queue"]), include=causes)  # fmt: skip
    def backfill(self, seed: int, key: str, back: int, overlap: Any, include: Any) -> None:
        self.go("backfill", seed)
        now = self.world.now()
        begin, end = now - back * SECOND, now - self.chance.choice([0, 10]) * SECOND
        self.world.ask(
            lambda: self.service.backfill(key, begin, end, overlap=overlap, include=include)
        )
        self.then()

    @rule(seed=seeds, key=keys, terminate=st.booleans())
    def cancel(self, seed: int, key: str, terminate: bool) -> None:  # noqa: FBT001 - drawn
        self.go("cancel", seed)
        self.world.ask(lambda: self.service.cancel(key, terminate=terminate))
        self.then()
