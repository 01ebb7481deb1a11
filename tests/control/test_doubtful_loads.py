"""Plans where loads or sizes are unknown, or windows old: what is unknown is never taken for nothing.

Twenty brokers of equal load but for broker 1, which leads four partitions more. Five partitions are led by each; every
partition has two replicas and takes 1 MB/s.
"""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from streaming.control.planning import propose_live
from streaming.control.policies import relief_policy
from streaming.control.wiring import decider_of, journal_of, window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, WINDOW_MS, DescribedCluster, last, settings, skewed, without
from tests.control.windows import RATE, write_windows

__all__ = ["settings"]  # fixtures


BROKERS = range(1, 21)
SILENT = 20


def twenty() -> DescribedCluster:
    placed = [(broker, (broker + hop - 1) % 20 + 1) for broker in BROKERS for hop in range(1, 6)]
    placed += [(1, other) for other in (5, 8, 11, 14)]
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(placed)}
    return DescribedCluster(LiveCluster("c", dict.fromkeys(BROKERS), partitions))


def decide(
    settings: Settings, cluster: DescribedCluster, silent: Collection[int], forged: dict[PartitionKey, float]
) -> ProposedPlan | None:
    write_windows(settings, cluster.live, end_ms=NOON_MS, silent=silent, forged=forged)
    return decider_of(cluster, journal_of(settings), settings).tick(now_ms=NOON_MS)


def planned(cluster: DescribedCluster, settings: Settings, **given: Any) -> ProposedPlan:
    return propose_live(cluster, cluster.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, **given)


def max_over_mean_after(cluster: DescribedCluster, plan: Plan) -> float:
    """True skew of bytes in, all partitions counted with the rate that they have."""
    moved = {(row.topic, row.partition): row.new_replicas for row in plan.movements}
    loads = Counter(broker for key, row in cluster.live.partitions.items() for broker in moved.get(key, row.replicas))
    return max(loads.values()) / (loads.total() / len(BROKERS))


@pytest.mark.long
def test_a_silent_broker_gets_nothing_and_keeps_what_it_has_and_the_plan_keeps_its_promise(settings: Settings) -> None:
    cluster = twenty()
    proposed = decide(settings, cluster, {SILENT}, {})
    assert proposed is not None, last(settings)["detail"]
    plan = proposed.plan
    for row in plan.movements:
        assert (SILENT in row.new_replicas) == (SILENT in row.old_replicas)
        assert row.new_replicas[0] != SILENT
        assert row.old_replicas[0] != SILENT, "its partitions' load is unknown"
    assert plan.diagnosis[-2:] == (
        (
            "the load of 5 partitions (first: t-95) is unknown: each counts at the mean of its topic, and moves only "
            "where a broker must be emptied or racks be spread"
        ),
        "brokers that take no replicas, as their load in the newest window is unknown: 20",
    )
    assert max_over_mean_after(cluster, plan) == pytest.approx(plan.skew_after["bytes_in"]["max_over_mean"], abs=0.01)


def test_loads_that_disagree_make_no_plan(settings: Settings) -> None:
    """Somebody claims for a partition of broker 7 what a broker has."""
    number = next(key for key, row in twenty().live.partitions.items() if row.leader == 7)
    assert decide(settings, twenty(), (), {number: 6 * RATE}) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "loads_disagree")
    assert last(settings)["detail"] == (
        "broker 7 reports 0.87 of a broker's mean bytes in less than its partitions add up to, 0.2 is allowed: "
        "their samples disagree"
    )


def test_a_topic_that_metadata_hides_makes_loads_disagree(settings: Settings) -> None:
    """Half of what broker 2 takes is this topic's. A plan that knows nothing of it would load broker 2 further."""
    cluster = twenty()
    shown = cluster.live
    hidden = {("u", number): LivePartition((2, 3), 2, (2, 3)) for number in range(5)}
    cluster.live = replace(shown, partitions={**shown.partitions, **hidden})
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    cluster.live = shown
    with pytest.raises(LoadsDisagree, match="broker 2"):
        planned(cluster, settings)


@pytest.mark.long
def test_the_bound_is_a_setting_and_drains_go_on(settings: Settings) -> None:
    cluster, key = twenty(), ("t", 30)
    write_windows(settings, cluster.live, end_ms=NOON_MS, forged={key: 6 * RATE})
    with pytest.raises(LoadsDisagree, match="broker 7 reports"):
        planned(cluster, settings)
    drain = relief_policy(frozenset({3}), drain=True)
    plan = planned(cluster, settings, policy=drain).plan
    assert plan.feasible
    assert {row.key for row in plan.movements} == {
        key for key, row in cluster.live.partitions.items() if 3 in row.replicas
    }
    assert plan.diagnosis[-1].endswith("their samples disagree")
    wide = Settings.model_validate({**settings.model_dump(), "planner": {"windows": 3, "load_disagreement_max": 2.0}})
    assert planned(cluster, wide).plan.movements


@pytest.mark.long
def test_a_silent_broker_can_be_drained_and_another_without_using_it(settings: Settings) -> None:
    cluster = twenty()
    write_windows(settings, cluster.live, end_ms=NOON_MS, silent={SILENT, 19, 18})  # 15 % of the leaders
    for drained in (SILENT, 2):
        policy = relief_policy(frozenset({drained}), drain=True)
        plan = planned(cluster, settings, policy=policy).plan
        assert plan.feasible
        held = {key for key, row in cluster.live.partitions.items() if drained in row.replicas}
        assert {row.key for row in plan.movements} == held
        new = {broker for row in plan.movements for broker in set(row.new_replicas) - set(row.old_replicas)}
        assert not new & {SILENT, 19, 18, drained}


@pytest.mark.long
def test_replicas_of_a_failed_broker_are_made_anew_though_others_are_silent(settings: Settings) -> None:
    """Two of nineteen are silent, too many for a plan that evens out load."""
    cluster = twenty()
    without(cluster, 4)
    silent = {SILENT, 19}

    def proposed(end_ms: int, windows: int) -> ProposedPlan | None:
        write_windows(settings, cluster.live, end_ms=end_ms, windows=windows, silent=silent)
        return decider_of(cluster, journal_of(settings), settings).tick(now_ms=end_ms)

    for end_ms in range(NOON_MS, NOON_MS + 1_800_000, 100_000):
        assert proposed(end_ms, 1) is None
        assert last(settings)["reason"] == "incomplete"
    plan = proposed(NOON_MS + 1_810_000, 3)
    assert plan is not None, last(settings)["detail"]
    assert last(settings)["reason"] == "broker_failed"
    new = {broker for row in plan.plan.movements for broker in set(row.new_replicas) - set(row.old_replicas)}
    assert not new & silent
    assert plan.plan.feasible


def test_a_broker_that_is_silent_is_not_filled_by_hand(settings: Settings) -> None:
    cluster = twenty()
    write_windows(settings, cluster.live, end_ms=NOON_MS, silent={SILENT})
    with pytest.raises(NothingToPlanOn, match="the load of broker 20 is unknown in the newest window"):
        planned(cluster, settings, policy=PlannerPolicy(add=frozenset({SILENT})))


@pytest.mark.long
def test_a_new_broker_that_holds_nothing_may_be_filled_before_its_first_window(settings: Settings) -> None:
    cluster = twenty()
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    cluster.live = replace(cluster.live, broker_racks={**cluster.live.broker_racks, 21: None})
    plan = planned(cluster, settings, policy=PlannerPolicy(add=frozenset({21}))).plan
    assert any(21 in row.new_replicas for row in plan.movements)


@pytest.mark.long
def test_below_the_floor_of_load_nothing_is_compared(settings: Settings) -> None:
    """Shares of next to nothing are noise: a person may still ask for a plan of an idle cluster."""
    cluster = twenty()
    write_windows(settings, cluster.live, end_ms=NOON_MS, rate=100.0, forged={("t", 30): 9_000.0})
    planned(cluster, settings)


@pytest.mark.long
def test_a_gain_within_the_noise_of_the_windows_makes_no_plan(settings: Settings) -> None:
    """Every second broker's load changes by a quarter from window to window; broker 1 stays the highest."""
    cluster = twenty()
    for index in range(3):
        rates = {
            key: RATE * (0.75 if row.leader > 1 and (row.leader + index) % 2 else 1.0)
            for key, row in cluster.live.partitions.items()
        }
        write_windows(settings, cluster.live, end_ms=NOON_MS + index * WINDOW_MS, windows=1, rates=rates)
    now_ms = NOON_MS + 2 * WINDOW_MS
    assert decider_of(cluster, journal_of(settings), settings).tick(now_ms=now_ms) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "min_gain")
    assert re.match(
        r"no plan lowers max/mean of bytes_in by 0\.\d\d or more, and less may be noise", last(settings)["detail"]
    )
    write_windows(settings, cluster.live, end_ms=now_ms + 3 * WINDOW_MS)
    assert decider_of(cluster, journal_of(settings), settings).tick(now_ms=now_ms + 3 * WINDOW_MS) is not None


class Hidden(DescribedCluster):
    """What `PartlyShownCluster` shows to a user without DESCRIBE on the cluster."""

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        assert partitions is None or not partitions
        return {broker: () for broker in self.live.broker_racks if brokers is None or broker in brokers}


def hidden() -> Hidden:
    return Hidden(replace(twenty().live, reassignments_hidden=True))


@pytest.mark.long
def test_skew_that_only_copies_could_mend_is_a_decision_to_hold_that_names_the_cause(settings: Settings) -> None:
    cluster = hidden()
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    assert decider_of(cluster, journal_of(settings), settings).tick(now_ms=NOON_MS) is None
    detail = last(settings)["detail"]
    assert "no plan lowers max/mean of bytes_in" in detail
    assert "as no broker shows its log dirs: all of them; sizes are unknown, so leaders alone change" in detail


@pytest.mark.long
def test_a_plan_by_hand_copies_nothing_and_a_drain_is_refused(settings: Settings) -> None:
    cluster = hidden()
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    plan = planned(cluster, settings).plan
    assert plan.movements
    assert plan.bytes_to_move == 0
    assert all(set(row.new_replicas) == set(row.old_replicas) for row in plan.movements)
    with pytest.raises(NothingToPlanOn, match="broker 3 would have to be copied"):
        planned(cluster, settings, policy=PlannerPolicy(drain=frozenset({3})))


MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def planned_at(settings: Settings, cluster: DescribedCluster, now_ms: int, *, forced: bool = False) -> ProposedPlan:
    return propose_live(
        cluster, cluster.live, window_tables_of(settings), settings.planner, now_ms=now_ms, on_old_windows=forced
    )


@pytest.mark.long
def test_a_plan_on_old_windows_is_refused_with_their_age_unless_they_are_wanted(settings: Settings) -> None:
    cluster = skewed()
    with pytest.raises(NothingToPlanOn, match="no closed window in the tables yet"):
        planned_at(settings, cluster, NOON_MS)
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    fresh = planned_at(settings, cluster, NOON_MS + MINUTE_MS).plan
    assert fresh.movement_count
    for age, shown in ((8 * MINUTE_MS, "8 min"), (3 * HOUR_MS, "3.0 h"), (72 * HOUR_MS, "3.0 d")):
        with pytest.raises(NothingToPlanOn, match=f"the newest window ended {shown} ago, .* none older than 110 s"):
            planned_at(settings, cluster, NOON_MS + age)
        assert planned_at(settings, cluster, NOON_MS + age, forced=True).plan == fresh


def test_control_that_starts_again_judges_no_window_twice(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each decision that is logged has its row, and the row of a window is never replaced."""
    cluster, journal = skewed(), journal_of(settings)
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    decider_of(cluster, journal, settings).tick(now_ms=NOON_MS)
    before = journal.last_decision()
    assert before is not None
    capfd.readouterr()
    again = decider_of(cluster, journal, settings)
    assert again.tick(now_ms=NOON_MS + 1_000) is None
    assert journal.last_decision() == before
    assert "decision" not in "".join(capfd.readouterr())
    write_windows(settings, cluster.live, end_ms=NOON_MS + WINDOW_MS)
    again.tick(now_ms=NOON_MS + WINDOW_MS)
    after = journal.last_decision()
    assert after is not None
    assert after["window_end"] > before["window_end"]
