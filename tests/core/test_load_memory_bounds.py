"""What is remembered of brokers' loads, figure by figure, and the bounds at which a doubt begins or ends."""

import math
import random
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from assignor_core.deciding.observation import Surroundings
from assignor_core.deciding.policy import Detector, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.deciding.skewed import Over, doubted, entering, is_noise, is_passing, plan_windows, remembered_noise
from assignor_core.load_history.load_memory import LASTING, Episodes, Levels, LoadMemory, OpenEpisode, SkewLimits
from assignor_core.load_history.windows import SkewWindow

REFERENCE = 1.2
WATCHED = SkewLimits(enter_ratio=1.30, exit_ratio=1.15, windows_over=3, completeness_min=0.95)
POLICY = TriggerPolicy(windows_over=2, windows_considered=3)
SHORT_ONES = (4, 5, 6, 7, 8)


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


def test_an_episode_beyond_the_horizon_speaks_for_a_lasting_one() -> None:
    """The horizon is 30 windows: 33 is just beyond it for one that has lasted for 3."""
    assert Episodes(ended=(4, 5, 33)).lasts(3)
    assert not Episodes(ended=(4, 5, 32)).lasts(3)


@pytest.mark.parametrize(
    ("share", "after_move", "lasted"),
    [(1.6, 0.9, LASTING), (1.6, 0.82, LASTING), (1.6, 0.78, 4), (4.0, 0.5, LASTING), (4.0, 0.49, 4)],
)
def test_an_episode_had_ended_if_the_broker_is_half_as_far_below(share: float, after_move: float, lasted: int) -> None:
    """Half as far as a logarithm; just half is not enough."""
    episodes = Episodes()
    for _ in range(4):
        episodes = episodes.after({1: share}, threshold=1.3, windows_min=3)
    episodes = episodes.changed()
    for _ in range(4):
        episodes = episodes.after({1: after_move}, threshold=1.3, windows_min=3)
    assert episodes.ended == (lasted,)


def remembered(levels: Levels, *ended: int, lasted: int = 3) -> LoadMemory:
    episodes = Episodes(((1, OpenEpisode(lasted)),), ended)
    return LoadMemory(levels={"bytes_in": levels}, episodes={"bytes_in": episodes})


def test_earlier_skews_are_counted_from_as_long_to_the_horizon() -> None:
    assert is_passing(remembered(levels_of(), 2, 3, 4, 5, 6, 7, 33), "bytes_in", 1) == (
        "of 6 earlier skews that lasted for 3 windows or more, 5 ended by themselves within 30 windows more"
    )


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
