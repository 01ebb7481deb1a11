"""A request that rests on an old look is not sent."""

from dataclasses import dataclass, field

import pytest

from streaming.control.look_age import LOOK_AGE_MAX_MS, LookAge
from streaming.errors import LookTooOld


@dataclass
class Clocks:
    """One goes on while the process is stopped, the other is set."""

    boot_ms: int = 0
    wall_ms: int = 0
    age: LookAge = field(init=False)

    def __post_init__(self) -> None:
        self.age = LookAge(lambda: self.boot_ms, lambda: self.wall_ms)

    def sends(self, *, after_ms: int) -> bool:
        """Whether a request is sent that long after its look."""
        self.age.begin()
        self.boot_ms += after_ms
        self.wall_ms += after_ms
        return self.sends_now()

    def sends_now(self) -> bool:
        try:
            with self.age.limited():
                self.age.check()
        except LookTooOld:
            return False
        return True


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_an_old_look_sends_nothing_and_the_next_one_does(clocks: Clocks) -> None:
    assert clocks.sends(after_ms=LOOK_AGE_MAX_MS)
    assert not clocks.sends(after_ms=3 * LOOK_AGE_MAX_MS)
    assert clocks.sends(after_ms=0)
    assert not clocks.sends(after_ms=LOOK_AGE_MAX_MS + 1), "what was slow once allows nothing for ever"


def test_a_cluster_whose_looks_all_take_long_is_not_starved(clocks: Clocks) -> None:
    assert [clocks.sends(after_ms=90_000) for _ in range(4)] == [False, True, True, True]


@pytest.mark.parametrize("stopped", ["boot_ms", "wall_ms"])
def test_one_of_the_two_clocks_may_have_stood_still(clocks: Clocks, stopped: str) -> None:
    clocks.age.begin()
    running = {"boot_ms": "wall_ms", "wall_ms": "boot_ms"}[stopped]
    setattr(clocks, running, LOOK_AGE_MAX_MS + 1)
    assert not clocks.sends_now()


def test_a_clock_that_is_set_back_makes_no_look_younger(clocks: Clocks) -> None:
    clocks.age.begin()
    clocks.boot_ms, clocks.wall_ms = LOOK_AGE_MAX_MS + 1, -3_600_000
    assert not clocks.sends_now()


def test_what_rests_on_no_look_is_not_judged(clocks: Clocks) -> None:
    clocks.age.begin()
    clocks.boot_ms = 10 * LOOK_AGE_MAX_MS
    clocks.age.check()
