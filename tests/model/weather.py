"""What servers, networks and machines may do, one rule each."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model import losses
from tests.model.base import Base, seeds
from tests.model.server import Faults


class Weather(Base):
    """Nothing here is anybody's wish."""

    @rule(seed=seeds)
    def kill(self, seed: int) -> None:
        self.go("kill", seed)
        if self.world.members and self.chance.random() < 0.6:
            self.world.kill(self.chance.choice(self.world.members))
        self.then()

    @rule(seed=seeds)
    def join(self, seed: int) -> None:
        self.go("join", seed)
        if len(self.world.members) < 3:
            self.world.join()
        self.then()

    @rule(seed=seeds, seconds=st.sampled_from([1, 20, 40, 300]))
    def stand_still(self, seed: int, seconds: float) -> None:
        self.go("stand still", seed)
        if self.world.members:
            self.world.stand_still(self.chance.choice(self.world.members), seconds)
        self.then()

    @rule(seed=seeds, away=st.booleans(), lost=st.sampled_from([0.0, 0.0, 0.1, 0.4]))
    def ledger_weather(self, seed: int, away: bool, lost: float) -> None:  # noqa: FBT001 - drawn
        self.go("ledger weather", seed)
        self.world.line.away, self.world.line.lost = away, lost
        self.then()

    @rule(seed=seeds, away=st.booleans(), part=st.sampled_from([0.1, 0.5]),
          what=st.sampled_from(["lost", "late", "busy", "slow", "nothing"]))  # fmt: skip
    def temporal_weather(self, seed: int, away: bool, part: float, what: str) -> None:  # noqa: FBT001 - drawn
        self.go("temporal weather", seed)
        faults = {} if what == "nothing" else {what: part}
        self.world.server.faults = Faults(away=away, **faults)
        self.then()

    @rule(seed=seeds)
    def fair(self, seed: int) -> None:
        self.go("fair", seed)
        self.world.server.faults, self.world.line.away, self.world.line.lost = Faults(), False, 0.0
        self.then()

    @rule(seed=seeds, what=st.sampled_from(["empty", "keep", "keep", "keep", "lose"]))
    def standby(self, seed: int, what: str) -> None:
        self.go("standby", seed)
        if what == "keep":
            self.world.standby.keep()
        elif self.chance.random() < 0.4:
            if what == "empty":
                losses.empty(self.world.account, self.world.server)
            else:
                self.world.fail_over()
        self.then()

    @rule(seed=seeds, retention=st.sampled_from([2, 5, 20, 20]))
    def retention(self, seed: int, retention: int) -> None:
        """Somebody changes how long the namespace remembers a closed run; minutes."""
        self.go("retention", seed)
        self.world.server.retention = timedelta(minutes=retention)
        self.then()

    @rule(seed=seeds, seconds=st.sampled_from([-600, -60, -10, -3, 3, 10, 60, 600]),
          back=st.booleans())  # fmt: skip
    def clock(self, seed: int, seconds: int, back: bool) -> None:  # noqa: FBT001 - drawn
        """The ledger's clock is set, or is right again."""
        self.go("clock", seed)
        if self.world.account.stepped or self.chance.random() < 0.15:
            self.world.live(1, 0.3)
            self.world.set_clock(timedelta(seconds=0 if back else seconds))
            self.world.live(2, 1)
        self.then()
