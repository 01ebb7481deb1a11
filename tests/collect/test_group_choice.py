"""Which groups are sampled where there are too many: those that matter stay, the others take turns."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.collect.groups import (
    AHEAD_FACTOR,
    FORGOTTEN_SAMPLES,
    ROUND_SHARE,
    TURN_SAMPLES,
    GroupChoice,
)

PLACES = 20
GOING_ROUND = PLACES // ROUND_SHARE


class Groups:
    """Groups with a lag each, that are looked at again and again; `committing` commit at every look."""

    def __init__(self, lags: Mapping[str, int], committing: frozenset[str] = frozenset()) -> None:
        self.lags = dict(lags)
        self.committing = committing
        self.choice = GroupChoice()
        self._looks = 0

    def look(self, *, silent: frozenset[str] = frozenset()) -> frozenset[str]:
        """The groups sampled; those of `silent` give no answer."""
        self._looks += 1
        chosen = self.choice.choose(self.lags.keys(), self.lags.keys(), PLACES)
        for name in chosen - silent:
            committed = self._looks if name in self.committing else 1
            self.choice.note(name, lag_records=self.lags[name], committed=committed)
        self.choice.note_unread(chosen & silent)
        return chosen

    def looks(self, count: int) -> list[frozenset[str]]:
        return [self.look() for _ in range(count)]


def idle(count: int, beginning: str = "idle") -> dict[str, int]:
    return {f"{beginning}-{number:03}": 0 for number in range(count)}


def test_all_are_sampled_where_they_are_no_more_than_allowed() -> None:
    groups = Groups(idle(PLACES))
    assert groups.looks(3) == [frozenset(groups.lags)] * 3


def test_groups_with_lag_and_groups_that_commit_are_sampled_at_every_look_whatever_their_names() -> None:
    lagging = {f"z-lag-{number}": 1_000 + number for number in range(5)}
    committing = idle(5, "z-commits")
    groups = Groups({**idle(60), **lagging, **committing}, frozenset(committing))
    groups.looks(70 // GOING_ROUND * TURN_SAMPLES)
    later = groups.looks(3 * TURN_SAMPLES)
    assert all(chosen >= lagging.keys() | committing.keys() for chosen in later)
    assert all(len(chosen) == PLACES for chosen in later)


def test_every_group_is_seen_within_a_bounded_number_of_looks() -> None:
    live = {f"live-{number:03}": 5 for number in range(40)}
    groups = Groups({**idle(40), **live})
    bound = -(-len(groups.lags) // GOING_ROUND) * TURN_SAMPLES
    assert frozenset().union(*groups.looks(bound)) == groups.lags.keys()
    assert frozenset().union(*groups.looks(bound)) == groups.lags.keys(), "again and again"


def test_a_new_group_with_lag_is_seen_in_the_next_turn_and_stays() -> None:
    live = {f"live-{number:03}": 5 for number in range(40)}
    groups = Groups({**live, **idle(40)})
    groups.looks(80 // GOING_ROUND * TURN_SAMPLES)
    groups.lags["new"] = 1_000
    looks = groups.looks(3 * TURN_SAMPLES)
    assert any("new" in chosen for chosen in looks[: TURN_SAMPLES + 1])
    assert all("new" in chosen for chosen in looks[TURN_SAMPLES:])


def test_a_turn_lasts_so_long_that_commits_show() -> None:
    groups = Groups({**{f"live-{number:03}": 5 for number in range(40)}, **idle(20)})
    groups.looks(60)
    turns = [chosen & idle(20).keys() for chosen in groups.looks(5 * TURN_SAMPLES)]
    lengths = {
        name: sum(name in turn for turn in turns) for name in frozenset().union(*turns[TURN_SAMPLES:-TURN_SAMPLES])
    }
    assert lengths
    assert min(lengths.values()) >= TURN_SAMPLES


@pytest.mark.parametrize("factor", [AHEAD_FACTOR - 0.1, AHEAD_FACTOR + 0.1])
def test_a_group_keeps_its_place_unless_another_is_clearly_ahead(factor: float) -> None:
    lags = {f"lag-{number:03}": 1_000 for number in range(60)}
    groups = Groups(lags)
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    kept = frozenset.intersection(*groups.looks(2 * TURN_SAMPLES))
    assert len(kept) == PLACES - GOING_ROUND
    challenger = next(name for name in lags if name not in kept)
    groups.lags[challenger] = round(1_000 * factor)
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    now_kept = frozenset.intersection(*groups.looks(2 * TURN_SAMPLES))
    assert (challenger in now_kept) == (factor > AHEAD_FACTOR)
    assert len(kept - now_kept) == (factor > AHEAD_FACTOR)


def test_groups_with_old_lag_leave_places_to_those_that_commit() -> None:
    dead = {f"dead-{number:03}": 10**9 for number in range(100)}
    live = idle(8, "live")
    groups = Groups({**dead, **live}, frozenset(live))
    groups.looks(108 // GOING_ROUND * TURN_SAMPLES)
    assert groups.look() >= live.keys()


def test_a_group_that_gives_no_answer_does_not_hold_up_the_turns() -> None:
    groups = Groups({**{f"live-{number:03}": 5 for number in range(40)}, **idle(10)})
    silent = frozenset(["idle-000", "idle-001"])
    seen = frozenset().union(*(groups.look(silent=silent) for _ in range(60 // GOING_ROUND * TURN_SAMPLES)))
    assert seen == groups.lags.keys()


def test_a_broker_that_does_not_list_its_groups_for_a_moment_costs_them_no_place() -> None:
    groups = Groups({**{f"live-{number:03}": 1_000 for number in range(18)}, **idle(40)})
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    live = {name: lag for name, lag in groups.lags.items() if lag}
    for name in live:
        del groups.lags[name]
    groups.looks(FORGOTTEN_SAMPLES // 2)
    groups.lags |= live
    assert groups.look() >= live.keys()
    for name in live:
        del groups.lags[name]
    groups.looks(FORGOTTEN_SAMPLES + 1)
    assert not live.keys() & groups.choice._known.keys()


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40), max_size=20), st.integers(1, 12)
)
def test_never_more_than_allowed_and_none_that_is_not_listed(looks: list[list[tuple[int, int]]], places: int) -> None:
    choice = GroupChoice()
    for listed in looks:
        lags = {f"g{number}": lag for number, lag in listed}
        chosen = choice.choose(lags.keys(), [], places)
        assert chosen <= lags.keys()
        assert len(chosen) == min(places, len(lags))
        for name in chosen:
            choice.note(name, lag_records=lags[name], committed=lags[name])
