"""What is remembered of closed windows: level, noise and evidence of brokers' loads, and how long skews last."""

import json
import math
import random
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import PLAN_WINDOWS_MAX, Detector, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.skewed import Over, doubted, entering, is_noise, is_passing, plan_windows, remembered_noise
from assignor_core.load_history.load_memory import (
    HORIZON_WINDOWS,
    LASTING,
    Episodes,
    Levels,
    LoadMemory,
    OpenEpisode,
    SkewLimits,
)
from assignor_core.load_history.windows import SkewWindow

REFERENCE = 1.2
WATCHED = SkewLimits(enter_ratio=1.30, exit_ratio=1.15, windows_over=3, completeness_min=0.95)
POLICY = TriggerPolicy(windows_over=2, windows_considered=3)
SHORT_ONES = (4, 5, 6, 7, 8)
MINUTE_MS = 60_000


@dataclass
class Reference:
    """One broker, followed as the page of the trigger defines it, one window at a time."""

    windows: int = 0
    settled: int = 0
    level: float = 0.0
    variance: float = 0.0
    covariance: float = 0.0
    residual: float = 0.0
    excess: float = 0.0
    excess_windows: int = 0
    excess_since_ms: int = 0

    def follow(self, share: float, end_ms: int) -> None:
        value = math.log(max(share, 0.05))
        self.settled += 1
        if self.settled == 1:
            self.level = value
        left, sigma = value - self.level, math.sqrt(self.variance)
        clipped = left
        if self.windows >= 10 and sigma > 0:
            clipped = max(-2.5 * sigma, min(2.5 * sigma, left))
        if self.settled > 5:
            weight = 1 / min(self.windows + 1, 600)
            self.covariance += weight * (clipped * self.residual - self.covariance)
            self.variance += weight * (clipped**2 - self.variance)
        self.level += (left if self.settled < 10 else clipped) / min(self.settled, 60)
        self.residual = clipped
        self.excess = max(0.0, self.excess + value - math.log(REFERENCE))
        self.excess_windows = self.excess_windows + 1 if self.excess > 0 else 0
        if self.excess_windows < 2:
            self.excess_since_ms = end_ms if self.excess_windows else 0
        self.windows += 1

    def move(self) -> None:
        self.settled = self.excess_windows = self.excess_since_ms = 0
        self.residual = self.excess = 0.0


def noisy_shares() -> list[float]:
    """700 windows: noise, with outliers at the places at which a rule begins to hold."""
    chance = random.Random(7)
    shares = [math.exp(chance.gauss(0.1, 0.15)) for _ in range(700)]
    for index in (8, 9, 10, 11, 59, 60, 61, 308, 309, 310, 311, 659):
        shares[index] = 0.0 if index % 2 else 4.0
    return shares


@pytest.mark.long
@pytest.mark.parametrize(
    "shares", [noisy_shares(), [1.0] * 12 + [1.5, 0.6, 1.1] * 5, [1.0, 1.1] * 5 + [4.0] + [1.0] * 5]
)
def test_levels_are_those_of_their_definition(shares: list[float]) -> None:
    """The first series moves replicas before window 300; the second has no noise for so long that nothing is cut; of
    the third it is the first window that may be.
    """
    levels, expected = Levels.none(), Reference()
    for index, share in enumerate(shares):
        if index == 300:
            levels = levels.changed()
            expected.move()
        end_ms = 60_000 * (index + 1)
        levels = levels.after({1: share}, end_ms=end_ms, reference=REFERENCE)
        expected.follow(share, end_ms)
        for name, value in vars(expected).items():
            assert getattr(levels, name)[0] == pytest.approx(value, rel=1e-9, abs=1e-12), (index, name)


def noisy(windows: int, *, noise: float, memory: float, seed: int = 1, level: float = 1.0) -> list[dict[int, float]]:
    """Shares of one broker about a level, a first-order autoregression, and of one that stays at 1."""
    chance, away, rows = random.Random(seed), 0.0, []
    for _ in range(windows):
        away = memory * away + chance.gauss(0.0, noise * math.sqrt(1 - memory**2))
        rows.append({1: level * math.exp(away), 2: 1.0})
    return rows


def followed(rows: list[dict[int, float]], levels: Levels | None = None, start: int = 0) -> Levels:
    levels = levels or Levels.none()
    for index, shares in enumerate(rows):
        levels = levels.after(shares, end_ms=MINUTE_MS * (start + index + 1), reference=REFERENCE)
    return levels


@pytest.mark.parametrize(
    ("noise", "memory"),
    [(0.10, 0.6), *(pytest.param(*other, marks=pytest.mark.long) for other in ((0.05, 0.0), (0.15, 0.6)))],
)
def test_noise_and_its_memory_are_measured(noise: float, memory: float) -> None:
    levels = followed(noisy(3_000, noise=noise, memory=memory))
    assert levels.noise(1) == pytest.approx(noise, rel=0.2)
    # The mean over ten windows, from the definition of such a series.
    lags = sum((10 - lag) * memory**lag for lag in range(1, 10))
    assert levels.mean_noise(1, 10) == pytest.approx(noise * math.sqrt(10 + 2 * lags) / 10, rel=0.3)
    assert levels.noise(2) < 0.02


@pytest.mark.long
def test_a_lasting_rise_is_told_from_noise_within_a_few_windows_and_noise_never_is() -> None:
    quiet = followed(noisy(1_000, noise=0.10, memory=0.6))
    for index, shares in enumerate(noisy(2_000, noise=0.10, memory=0.6, seed=2)):
        quiet = quiet.after(shares, end_ms=MINUTE_MS * (1_001 + index), reference=REFERENCE)
        assert not quiet.has_risen(1)
    risen = followed(noisy(6, noise=0.10, memory=0.6, seed=3, level=1.7), quiet, 3_000)
    assert risen.has_risen(1)
    assert not risen.has_risen(2)
    assert risen.risen_since_ms(1) == MINUTE_MS * 3_001
    assert not risen.changed().has_risen(1)
    assert risen.changed().noise(1) == risen.noise(1)


def test_evidence_begins_anew_after_a_move() -> None:
    moved = levels_of(excess=9.0, excess_windows=5, excess_since_ms=7).changed()
    assert moved.risen_since_ms(1) == 0
    again = moved.after({1: 2.0}, end_ms=20, reference=REFERENCE)
    assert (int(again.excess_windows[0]), again.risen_since_ms(1)) == (1, 20)


def test_none_has_no_rows_and_lists_of_different_lengths_are_refused() -> None:
    none = Levels.none()
    assert {len(getattr(none, column.name)) for column in fields(Levels)} == {0}
    kept = none.after({1: 1.0, 2: 1.1}, end_ms=1, reference=REFERENCE).as_dict()
    with pytest.raises(ValueError, match="levels: lists of different lengths"):
        Levels.from_dict({**kept, "excess": [0.0]})


def test_a_broker_is_known_from_60_windows_and_forgotten_after_a_day() -> None:
    for windows in (59, 60):
        assert levels_of(windows=windows).is_known(1) is (windows == 60)
    assert not levels_of(windows=60).is_known(2), "it was never seen"
    levels = levels_of(seen_ms=1)
    for day_ms, brokers in ((86_400_000, (1, 2)), (86_400_001, (2,))):
        assert levels.after({2: 1.0}, end_ms=1 + day_ms, reference=REFERENCE).brokers == brokers


def test_each_broker_keeps_its_figures_when_another_comes_or_goes() -> None:
    known = Levels.none()
    for minute in range(6):
        known = known.after({2: 1.0 + 0.1 * minute, 4: 2.0 - 0.1 * minute}, end_ms=minute, reference=REFERENCE)
    wider = known.after({1: 1.0, 3: 1.0, 5: 1.0}, end_ms=6, reference=REFERENCE)
    assert wider.brokers == (1, 2, 3, 4, 5)
    for name in [column.name for column in fields(Levels)[1:]]:
        assert getattr(wider, name)[[1, 3]].tolist() == getattr(known, name).tolist(), name
    later = wider.after({4: 1.0}, end_ms=86_400_006, reference=REFERENCE)
    assert (later.brokers, later.windows.tolist()) == ((1, 3, 4, 5), [1, 1, 7, 1])


def test_a_broker_that_was_never_seen_has_no_noise_and_no_window_has_any() -> None:
    with pytest.raises(KeyError):
        levels_of().noise(2)
    assert levels_of().mean_noise(1, 0) == 0.0


def levels_of(**figures: float) -> Levels:
    """One broker whose share has a standard deviation of 0.1 and no correlation, where nothing else is given."""
    row = {"windows": 100, "settled": 100, "variance": 0.01, **figures}
    types = {column.name: getattr(Levels.none(), column.name).dtype for column in fields(Levels)[1:]}
    return Levels((1,), **{name: np.array([row.get(name, 0)], kind) for name, kind in types.items()})


@pytest.mark.parametrize(
    ("windows", "covariance", "needed"),
    [
        (1, 0.0, 0.3),  # three standard deviations of one window
        (4, 0.0, 0.6),
        (100, 0.0, 0.6),  # six where it lasts
        (1, 0.005, 0.3),
        (100, 0.005, 0.6 * math.sqrt(1.5 / 0.5)),
        (10**6, 0.00999, 0.6 * math.sqrt(1.9 / 0.1)),  # a correlation of 0.9 at most
        (100, -0.005, 0.6),
    ],
)
def test_a_rise_is_no_noise_above_its_bound(windows: int, covariance: float, needed: float) -> None:
    for excess in (0.999 * needed, 1.001 * needed):
        levels = levels_of(excess=excess, excess_windows=windows, covariance=covariance)
        assert levels.has_risen(1) is (excess > needed)


def test_the_noise_of_one_window_is_that_of_the_broker() -> None:
    assert levels_of().noise(1) == levels_of().mean_noise(1, 1) == pytest.approx(0.1)
    assert levels_of().mean_noise(1, 4) == pytest.approx(0.05)
    assert levels_of(variance=0.0).noise(1) == 0.015


def window(end_ms: int, share: float, *, reporting: int = 20) -> SkewWindow:
    return SkewWindow(end_ms, {"bytes_in": {1: share, 2: 1.0}}, {}, 20, reporting, 10)


def test_a_window_counts_if_just_enough_brokers_report() -> None:
    assert (LoadMemory().newest_ms, LoadMemory().changed_ms) == (0, 0)
    for reporting, is_counted in ((18, False), (19, True)):
        memory = LoadMemory().after((window(10, 1.0, reporting=reporting),), WATCHED, changed_ms=0)
        assert memory.newest_ms == 10
        assert ("bytes_in" in memory.levels) is is_counted


def test_a_move_counts_once_from_the_first_window_that_began_no_sooner() -> None:
    memory = LoadMemory().after((window(10, 2.0), window(20, 2.0)), WATCHED, changed_ms=0)
    for changed_ms, settled, known_ms in ((21, 3, 0), (20, 1, 20), (30, 3, 0)):
        after = memory.after((window(30, 2.0),), WATCHED, changed_ms=changed_ms)
        assert (int(after.levels["bytes_in"].settled[0]), after.changed_ms) == (settled, known_ms), changed_ms
        is_moved = after.episodes["bytes_in"].open[0][1].shares_since_moved is not None
        assert is_moved is (known_ms > 0)
    moved = memory.after((window(30, 2.0), window(40, 2.0)), WATCHED, changed_ms=20)
    assert int(moved.levels["bytes_in"].settled[0]) == 2
    older = moved.after((window(50, 2.0),), WATCHED, changed_ms=5)
    assert (int(older.levels["bytes_in"].settled[0]), older.changed_ms) == (3, 20)


def episode(episodes: Episodes, *shares: float) -> Episodes:
    for share in shares:
        episodes = episodes.after({1: share, 2: 0.9}, threshold=1.3, windows_min=3)
    return episodes


def test_episodes_that_end_by_themselves_are_measured_and_short_ones_left_out() -> None:
    once = episode(Episodes(), 1.0, 1.5, 1.5, 1.2, 1.5, 1.5, 1.0, 1.0)
    assert once.ended == (5,)
    assert once.windows_of(1) == 0
    assert episode(once, 1.5, 1.5, 1.0, 1.0).ended == (5,)
    assert episode(once, 1.5, 1.5).windows_of(1) == 2


def test_each_broker_has_episodes_of_its_own_that_begin_above_the_threshold_not_at_it() -> None:
    rows = [{1: 1.3, 2: 1.5, 3: 0.9, 4: 1.4}] * 3 + [{1: 1.0, 2: 1.3, 3: 0.9, 4: 1.4}] * 2
    episodes = Episodes().after(rows[0], threshold=1.3, windows_min=3)
    assert [episodes.windows_of(broker) for broker in (1, 2, 3, 4)] == [0, 1, 0, 1]
    for shares in rows[1:]:
        episodes = episodes.after(shares, threshold=1.3, windows_min=3)
    assert [episodes.windows_of(broker) for broker in (1, 2, 3, 4)] == [0, 0, 0, 5]
    assert episodes.ended == (3,)


def test_the_newest_64_episodes_are_kept() -> None:
    episodes = Episodes(ended=tuple(range(100, 164)))
    assert episode(episodes, 1.5, 1.5, 1.5, 1.0, 1.0).ended == (*range(101, 164), 3)


def test_what_lasted_before_is_expected_again() -> None:
    bursts = Episodes(ended=(4, 6, 8, 9, 10))
    assert [bursts.lasts(windows) for windows in (3, 8, 9, 10, 11)] == [False, False, False, True, True]
    assert Episodes(ended=(4, 6, 8, LASTING, LASTING)).lasts(3)
    assert Episodes(ended=(3 + HORIZON_WINDOWS,) * 9).lasts(3)
    assert [Episodes(ended=(4, 5, 2 + beyond)).lasts(3) for beyond in (30, 31)] == [False, True], "33 is beyond 30 more"


@pytest.mark.parametrize(
    ("share", "after_move", "lasted"),
    [(1.6, 0.9, LASTING), (1.6, 0.82, LASTING), (1.6, 0.78, 4), (4.0, 0.5, LASTING), (4.0, 0.49, 4)],
)
def test_an_episode_had_ended_if_the_broker_is_half_as_far_below(share: float, after_move: float, lasted: int) -> None:
    """Half as far as a logarithm; just half is not enough."""
    moved = episode(Episodes(), *[share] * 4).changed()
    assert episode(moved, *[after_move] * 3).ended == ()
    assert episode(moved, *[after_move] * 4).ended == (lasted,)


@given(st.lists(st.floats(0.2, 3.0), max_size=60), st.lists(st.integers(0, 59), max_size=3))
def test_memory_is_what_its_json_says_and_is_made_of_windows_alone(shares: list[float], moves: list[int]) -> None:
    """In one go or with a restart after every window, which reads what was kept: the same memory."""

    def window(index: int) -> SkewWindow:
        ratios = {"bytes_in": {1: shares[index], 2: 1.0}}
        return SkewWindow(MINUTE_MS * (index + 1), ratios, {}, 2, 2, MINUTE_MS)

    def changed_ms(index: int) -> int:
        return max((MINUTE_MS * move for move in moves if move <= index), default=0)

    whole, kept = LoadMemory(), LoadMemory()
    for index in range(len(shares)):
        whole = whole.after((window(index),), WATCHED, changed_ms=changed_ms(index))
        seen_again = tuple(window(earlier) for earlier in range(max(0, index - 3), index + 1))
        kept = restarted(kept).after(seen_again, WATCHED, changed_ms=changed_ms(index))
    assert whole.newest_ms == kept.newest_ms
    assert {name: levels.as_dict() for name, levels in whole.levels.items()} == {
        name: levels.as_dict() for name, levels in kept.levels.items()
    }
    assert whole.episodes == kept.episodes
    assert all(np.isfinite(levels.excess).all() and (levels.excess >= 0).all() for levels in whole.levels.values())


def restarted(memory: LoadMemory) -> LoadMemory:
    levels = {name: Levels.from_dict(json.loads(json.dumps(row.as_dict()))) for name, row in memory.levels.items()}
    episodes = {
        name: Episodes.from_dict(json.loads(json.dumps(row.as_dict()))) for name, row in memory.episodes.items()
    }
    return LoadMemory(memory.newest_ms, memory.changed_ms, levels, episodes)


def remembered(levels: Levels, *ended: int, lasted: int = 3) -> LoadMemory:
    episodes = Episodes(((1, OpenEpisode(lasted)),), ended)
    return LoadMemory(levels={"bytes_in": levels}, episodes={"bytes_in": episodes})


def test_earlier_skews_are_counted_from_as_long_to_the_horizon() -> None:
    assert is_passing(remembered(levels_of(), 2, 3, 4, 5, 6, 7, 33), "bytes_in", 1) == (
        "of 6 earlier skews that lasted for 3 windows or more, 5 ended by themselves within 30 windows more"
    )


def test_doubts_are_put_in_words_with_their_figures() -> None:
    levels = followed(noisy(600, noise=0.10, memory=0.6))
    episodes = Episodes(((1, episode(Episodes(), 1.5, 1.5, 1.5).open[0][1]),), (4, 5, 6, 9))
    memory = LoadMemory(levels={"bytes_in": levels}, episodes={"bytes_in": episodes})
    assert is_noise(memory, "bytes_in", 1) == (
        f"the load of broker 1 changes by {levels.noise(1):.0%} from window to window: this may be noise"
    )
    assert is_passing(memory, "bytes_in", 1) == (
        "of 4 earlier skews that lasted for 3 windows or more, 4 ended by themselves within 30 windows more"
    )
    assert is_passing(memory, "bytes_in", 2) is None
    assert plan_windows(memory, "bytes_in", 1, 5) == PLAN_WINDOWS_MAX
    assert plan_windows(memory, "bytes_in", 2, 5) == 5
    assert plan_windows(memory, "bytes_out", 1, 5) == 5
    assert remembered_noise(memory, "bytes_out", 5) is None
    few, many = (remembered_noise(memory, "bytes_in", windows) for windows in (3, 30))
    assert few is not None
    assert many is not None
    assert few > many > 0


def after_growth(grown_to: float, mean_over: float = 1.4, **figures: float) -> LoadMemory:
    """A broker that is above the threshold after its level has grown so far; 1 where it has not grown."""
    skew = OpenEpisode(3, grown_to=math.log(grown_to), total_over=2 * math.log(mean_over), windows_over=2)
    episodes = Episodes(((1, skew),), SHORT_ONES)
    return LoadMemory(levels={"bytes_in": levels_of(**figures)}, episodes={"bytes_in": episodes})


@pytest.mark.parametrize(
    ("grown_to", "sigmas_above", "passes"), [(1.0, 1.9, True), (1.2, 1.9, False), (1.2, 2.1, True)]
)
def test_a_skew_that_slow_growth_leads_to_does_not_pass(grown_to: float, sigmas_above: float, passes: bool) -> None:
    """Short skews have passed before; noise alone makes this one of what has grown."""
    memory = after_growth(grown_to, grown_to * math.exp(0.1 * sigmas_above))
    assert (is_passing(memory, "bytes_in", 1) is not None) is passes


@pytest.mark.parametrize(("grown_to", "lasting_sigmas"), [(1.0, 6.0), (1.2, 4.0)])
def test_after_slow_growth_less_evidence_is_enough(grown_to: float, lasting_sigmas: float) -> None:
    """What lasts of noise without memory has its standard deviation, here 0.1; 100 windows add up to more."""
    for sigmas, is_doubted in ((lasting_sigmas - 0.01, True), (lasting_sigmas + 0.01, False)):
        memory = after_growth(grown_to, excess=0.1 * sigmas, excess_windows=100)
        assert (is_noise(memory, "bytes_in", 1) is not None) is is_doubted


@pytest.mark.parametrize(
    ("windows", "first", "later", "has_grown"),
    [(60, 1.0, 1.2, True), (59, 1.0, 1.2, False), (60, 1.0, 1.14, False), (60, 1.1, 1.26, False), (60, 0.9, 1.2, True)],
)
def test_a_level_has_grown_if_it_is_above_exit_ratio_and_was_not_so_after_the_last_move(
    windows: int, first: float, later: float, has_grown: bool
) -> None:
    levels = Levels.none()
    for minute in range(windows):
        levels = levels.after({1: first}, end_ms=60_000 * minute, reference=REFERENCE)
    levels = replace(levels, level=np.log([later]), settled=levels.settled + 1)
    assert levels.grown(1.15) == ({1: pytest.approx(math.log(later))} if has_grown else {})
    assert levels.changed().grown(1.15) == {}


def test_an_episode_remembers_what_its_broker_had_grown_to() -> None:
    episodes = Episodes()
    for shares in ({1: 1.2, 2: 1.5}, {1: 1.4, 2: 1.2}, {1: 1.2, 2: 1.5}, {1: 1.6, 2: 1.5}):
        episodes = episodes.after(shares, threshold=1.3, windows_min=3, grown={1: 0.17})
    assert (episodes.grown_to(1), episodes.grown_to(2), episodes.grown_to(3)) == (0.17, 0.0, 0.0)
    assert episodes.mean_over(1) == pytest.approx(math.log(1.4 * 1.6) / 2)
    assert episodes.mean_over(2) == pytest.approx(math.log(1.5))
    assert episodes.mean_over(3) == 0.0


def test_levels_of_an_earlier_version_grow_from_now_on() -> None:
    kept = {name: values for name, values in levels_of(level=0.2).as_dict().items() if name != "first_level"}
    assert Levels.from_dict(kept).first_level.tolist() == [0.2]


def test_a_plan_rests_on_as_many_windows_as_its_noise_needs() -> None:
    assert plan_windows(remembered(levels_of(variance=0.0009)), "bytes_in", 1, 1) == 1
    assert plan_windows(remembered(levels_of(variance=0.00091)), "bytes_in", 1, 1) == 2
    assert plan_windows(remembered(levels_of(variance=1.0)), "bytes_in", 1, 5) == 30
    assert remembered_noise(remembered(levels_of()), "bytes_in", 4) == pytest.approx(2 * 0.05)


HOT = tuple(SkewWindow(10 * number, {"bytes_in": {1: 1.5, 2: 1.0}}, {}, 2, 2, 10) for number in (1, 2))


def around(*ended: int, **figures: float) -> Surroundings:
    risen = {"excess": 9.0, "excess_windows": 2, "excess_since_ms": 10, **figures}
    return Surroundings(memory=remembered(levels_of(**risen), *ended))


@pytest.mark.parametrize(("risen_ms", "since_ms"), [(5, 5), (10, 10), (15, 10), (0, 10)])
def test_a_skew_began_with_its_evidence_if_that_is_older(risen_ms: int, since_ms: int) -> None:
    assert entering(POLICY, HOT, around(excess_since_ms=risen_ms)) == Over("bytes_in", 1, since_ms)


def test_a_broker_whose_noise_explains_its_load_needs_no_plan() -> None:
    noise = around(excess=0.1)
    assert entering(POLICY, HOT, noise) is None
    assert doubted(POLICY, HOT, noise) == (
        Over("bytes_in", 1, 10),
        Reason.NOISE,
        "the load of broker 1 changes by 10% from window to window: this may be noise",
    )
    few = around(excess=0.1, windows=59)
    for policy, known in ((replace(POLICY, detector=Detector.WINDOWS), noise), (POLICY, few)):
        assert entering(policy, HOT, known) == Over("bytes_in", 1, 10)
        assert doubted(policy, HOT, known) is None


@pytest.mark.parametrize(
    ("changed", "is_doubted"), [({}, True), ({"behind": {1: "billing"}}, False), ({"behind": {2: "billing"}}, True)]
)
def test_a_passing_skew_needs_a_plan_only_where_groups_fall_behind(changed: dict[str, Any], is_doubted: bool) -> None:
    passing = replace(around(*SHORT_ONES), **changed)
    assert (entering(POLICY, HOT, passing) is None) is is_doubted
    doubt = doubted(POLICY, HOT, passing)
    assert (doubt is not None) is is_doubted
    assert doubt is None or doubt[1:] == (
        Reason.PASSING,
        "of 5 earlier skews that lasted for 3 windows or more, 5 ended by themselves within 30 windows more",
    )
