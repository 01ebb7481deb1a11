"""Level, noise and evidence of brokers' loads, and how long skews last: what is remembered of closed windows."""

import json
import math
import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.deciding.policy import PLAN_WINDOWS_MAX
from assignor_core.deciding.skewed import is_noise, is_passing, plan_windows, remembered_noise
from assignor_core.load_history.load_memory import (
    HORIZON_WINDOWS,
    KEPT_MS,
    KNOWN_AFTER_WINDOWS,
    LASTING,
    Episodes,
    Levels,
    LoadMemory,
    SkewLimits,
)
from assignor_core.load_history.windows import SkewWindow

WATCHED = SkewLimits(enter_ratio=1.30, exit_ratio=1.15, windows_over=3, completeness_min=0.95)
MINUTE_MS = 60_000


def noisy(windows: int, *, noise: float, memory: float, seed: int = 1, level: float = 1.0) -> list[dict[int, float]]:
    """Shares of one broker about a level, a first-order autoregression, and of one that stays at 1."""
    chance, away, rows = random.Random(seed), 0.0, []
    for _ in range(windows):
        away = memory * away + chance.gauss(0.0, noise * math.sqrt(1 - memory**2))
        rows.append({1: level * math.exp(away), 2: 1.0})
    return rows


def levels_of(rows: list[dict[int, float]], levels: Levels | None = None, start: int = 0) -> Levels:
    levels = levels or Levels.none()
    for index, shares in enumerate(rows):
        levels = levels.after(shares, end_ms=MINUTE_MS * (start + index + 1), reference=WATCHED.reference)
    return levels


@pytest.mark.parametrize(
    ("noise", "memory"),
    [(0.10, 0.6), *(pytest.param(*other, marks=pytest.mark.long) for other in ((0.05, 0.0), (0.15, 0.6)))],
)
def test_noise_and_its_memory_are_measured(noise: float, memory: float) -> None:
    levels = levels_of(noisy(3_000, noise=noise, memory=memory))
    assert levels.noise(1) == pytest.approx(noise, rel=0.2)
    # The mean over ten windows, from the definition of such a series.
    lags = sum((10 - lag) * memory**lag for lag in range(1, 10))
    assert levels.mean_noise(1, 10) == pytest.approx(noise * math.sqrt(10 + 2 * lags) / 10, rel=0.3)
    assert levels.noise(2) < 0.02


def test_a_lasting_rise_is_told_from_noise_within_a_few_windows_and_noise_never_is() -> None:
    quiet = levels_of(noisy(1_000, noise=0.10, memory=0.6))
    for index, shares in enumerate(noisy(2_000, noise=0.10, memory=0.6, seed=2)):
        quiet = quiet.after(shares, end_ms=MINUTE_MS * (1_001 + index), reference=WATCHED.reference)
        assert not quiet.has_risen(1)
    risen = levels_of(noisy(6, noise=0.10, memory=0.6, seed=3, level=1.7), quiet, 3_000)
    assert risen.has_risen(1)
    assert not risen.has_risen(2)
    assert risen.risen_since_ms(1) == MINUTE_MS * 3_001
    assert not risen.changed().has_risen(1)
    assert risen.changed().noise(1) == risen.noise(1)


def test_a_broker_is_known_after_a_while_and_forgotten_after_a_day_without_load() -> None:
    levels = levels_of([{1: 1.0}] * (KNOWN_AFTER_WINDOWS - 1))
    assert not levels.is_known(1)
    levels = levels_of([{1: 1.0, 3: 1.1}], levels, KNOWN_AFTER_WINDOWS)
    assert (levels.brokers, levels.is_known(1), levels.is_known(3), levels.is_known(9)) == ((1, 3), True, False, False)
    newest_ms = int(levels.seen_ms[0])
    assert levels.after({3: 1.0}, end_ms=newest_ms + KEPT_MS, reference=1.2).brokers == (1, 3)
    assert levels.after({3: 1.0}, end_ms=newest_ms + KEPT_MS + 1, reference=1.2).brokers == (3,)


def test_brokers_without_a_known_load_stay_as_they_are() -> None:
    before = levels_of(noisy(200, noise=0.1, memory=0.6))
    after = before.after({2: 1.0}, end_ms=MINUTE_MS * 500, reference=WATCHED.reference)
    for column in fields(Levels)[1:]:
        assert getattr(after, column.name)[0] == getattr(before, column.name)[0], column.name


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


@pytest.mark.parametrize(("after_move", "lasted"), [(1.0, LASTING), (0.65, 4)])
def test_windows_after_a_move_show_whether_the_skew_had_ended(after_move: float, lasted: int) -> None:
    moved = episode(Episodes(), 1.6, 1.6, 1.6, 1.6).changed()
    assert episode(moved, *[after_move] * 3).ended == ()
    assert episode(moved, *[after_move] * 4).ended == (lasted,)


def test_what_lasted_before_is_expected_again() -> None:
    bursts = Episodes(ended=(4, 6, 8, 9, 10))
    assert [bursts.lasts(windows) for windows in (3, 8, 9, 10, 11)] == [False, False, False, True, True]
    assert Episodes(ended=(4, 6, 8, LASTING, LASTING)).lasts(3)
    assert Episodes(ended=(3 + HORIZON_WINDOWS,) * 9).lasts(3)


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


def test_incomplete_windows_are_not_judged() -> None:
    half = SkewWindow(MINUTE_MS, {"bytes_in": {1: 2.0}}, {}, 2, 1)
    memory = LoadMemory().after((half,), WATCHED, changed_ms=0)
    assert (memory.newest_ms, dict(memory.levels)) == (MINUTE_MS, {})


def test_doubts_are_put_in_words_with_their_figures() -> None:
    levels = levels_of(noisy(600, noise=0.10, memory=0.6))
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
