"""Each cause is found where it is and nowhere else: groups of twelve partitions and three members, on three brokers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import GroupReading, LagCause, Reading, diagnose

RATIOS = {1: 1.5, 2: 0.7, 3: 0.8}
Lags = Callable[[int], bool]


def group(
    lags: Lags, *, members: int = 3, partitions: int = 12, written: Callable[[int], float] = lambda _p: 100.0,
    rebalances: float = 0.0,
) -> GroupReading:  # fmt: skip
    """Members own partitions in turn, brokers lead them four in a row; what lags is read at half its rate."""
    rows = [
        Reading(
            "orders", p, LagStatus.WARN if lags(p) else LagStatus.OK, f"m{p % members}", f"c{p % members}",
            1 + p // 4 % 3, written(p) * (0.5 if lags(p) else 1.0), written(p),
        )
        for p in range(partitions)
    ]  # fmt: skip
    return GroupReading("billing", rows, RATIOS, rebalances)


def hot_key(p: int) -> float:
    return 1_100.0 if p == 7 else 100.0


CASES = {
    "hot broker": (group(lambda p: p < 4), LagCause.HOT_BROKER, "broker 1",
                   "4 of 4 partitions behind are led by it, 4 of 12 in all; load 1.50 x mean"),
    "hot partition": (group(lambda p: p == 7, written=hot_key), LagCause.HOT_PARTITION, "orders-7",
                      "takes 50% of the records of orders, 1,100/s"),
    "slow member": (group(lambda p: p % 3 == 1), LagCause.SLOW_MEMBER, "c1 (m1)",
                    "4 of its 4 partitions behind, it reads 200/s of 400/s; others keep up"),
    "too few members": (group(lambda _p: True), LagCause.TOO_FEW_MEMBERS, "billing",
                        "3 members for 12 partitions; 12 of them behind, 600/s read of 1,200/s written"),
    "too few partitions": (group(lambda _p: True, members=12), LagCause.TOO_FEW_PARTITIONS, "billing",
                           "12 members read 12 partitions; 12 of them behind, 600/s read of 1,200/s written"),
    "storm": (group(lambda p: p % 5 == 0, rebalances=40.0), LagCause.REBALANCE_STORM, "billing",
              "40 rebalances an hour"),
}  # fmt: skip


@pytest.mark.parametrize(("reading", "cause", "subject", "figure"), CASES.values(), ids=CASES.keys())
def test_a_cause_is_named_alone_with_its_figure(
    reading: GroupReading, cause: LagCause, subject: str, figure: str
) -> None:
    (diagnosis,) = diagnose(reading)
    assert (diagnosis.cause, diagnosis.subject, diagnosis.figure) == (cause, subject, figure)
    assert diagnosis.helps


def test_a_group_that_keeps_up_and_a_lag_without_a_pattern_have_no_cause() -> None:
    assert diagnose(group(lambda _p: False, rebalances=40.0)) == ()
    assert diagnose(group(lambda p: p in (0, 5, 10))) == ()


def test_a_broker_that_is_not_hot_is_not_blamed() -> None:
    assert diagnose(group(lambda p: 4 <= p < 8)) == ()


def test_a_member_alone_is_not_called_slow() -> None:
    (diagnosis,) = diagnose(group(lambda _p: True, members=1))
    assert diagnosis.cause is LagCause.TOO_FEW_MEMBERS


def test_a_topic_with_one_written_partition_has_a_hot_one() -> None:
    (diagnosis,) = diagnose(group(lambda p: p == 2, written=lambda p: 500.0 if p == 2 else 0.0))
    assert (diagnosis.cause, diagnosis.subject) == (LagCause.HOT_PARTITION, "orders-2")


def founding(*, members_per_broker: int, hot_rate: float = 0.6) -> GroupReading:
    """The founding example, read by members near their broker that can all read the same: broker 1's can't keep up."""
    rows = []
    for topic, per_broker, written in (("topic-A", (15, 7, 8), 100.0), ("topic-B", (5, 13, 12), 0.01)):
        brokers = [broker for broker, count in zip((1, 2, 3), per_broker, strict=True) for _ in range(count)]
        for p, broker in enumerate(brokers):
            lags = broker == 1 and topic == "topic-A"
            member = f"m{broker}-{p % members_per_broker}"
            status = LagStatus.WARN if lags else LagStatus.OK
            read = written * (hot_rate if lags else 1.0)
            rows.append(Reading(topic, p, status, member, member, broker, read, written))
    return GroupReading("billing", rows, {1: 1.5, 2: 0.7, 3: 0.8})


@pytest.mark.parametrize("members_per_broker", [1, 2])
def test_in_the_founding_example_it_is_the_broker_though_a_quarter_of_it_is_hardly_written(
    members_per_broker: int,
) -> None:
    (diagnosis,) = diagnose(founding(members_per_broker=members_per_broker))
    assert (diagnosis.cause, diagnosis.subject) == (LagCause.HOT_BROKER, "broker 1")
    assert diagnosis.figure == "15 of 15 partitions behind are led by it, 15 of 30 in all; load 1.50 x mean"


def test_a_member_that_reads_less_than_others_can_is_slow_on_a_hot_broker_too() -> None:
    causes = [diagnosis.cause for diagnosis in diagnose(founding(members_per_broker=1, hot_rate=0.3))]
    assert causes == [LagCause.HOT_BROKER, LagCause.SLOW_MEMBER]


def skewed(*, sibling_lags: bool, all_lag: bool = False) -> GroupReading:
    """Nine partitions, three members; one takes ten times its siblings' records, and its member reads all it can."""
    rows = []
    for p in range(9):
        lags = p == 4 or all_lag or (sibling_lags and p in (3, 5))
        written = 1_000.0 if p == 4 else 100.0
        read = 400.0 if p == 4 else 90.0 if lags else 100.0
        status = LagStatus.WARN if lags else LagStatus.OK
        rows.append(Reading("orders", p, status, f"m{p // 3}", f"c{p // 3}", 1 + p // 3, read, written))
    return GroupReading("billing", rows, {1: 0.5, 2: 2.0, 3: 0.5})


@pytest.mark.parametrize("sibling_lags", [False, True])
def test_a_hot_partition_is_named_alone_though_its_member_and_broker_lag_with_it(sibling_lags: bool) -> None:
    (diagnosis,) = diagnose(skewed(sibling_lags=sibling_lags))
    assert (diagnosis.cause, diagnosis.subject) == (LagCause.HOT_PARTITION, "orders-4")


def test_where_all_lags_beside_a_hot_partition_members_are_few_too() -> None:
    assert [diagnosis.cause for diagnosis in diagnose(skewed(sibling_lags=True, all_lag=True))] == [
        LagCause.HOT_PARTITION,
        LagCause.TOO_FEW_MEMBERS,
    ]


def test_a_partition_that_is_hardly_written_is_never_the_hot_one() -> None:
    rows = [
        Reading("big", p, LagStatus.WARN, f"m{p % 2}", f"c{p % 2}", 1 + p % 3, 500.0, 1_000.0) for p in range(6)
    ] + [Reading("small", p, LagStatus.WARN, "m0", "c0", 1, 0.1, 0.3 if p == 2 else 0.1) for p in range(3)]
    assert [diagnosis.cause for diagnosis in diagnose(GroupReading("g", rows, RATIOS))] == [LagCause.TOO_FEW_MEMBERS]


def test_siblings_whose_rate_is_unknown_make_no_partition_hot() -> None:
    """As after a change of leaders: most rates of the topic are unknown for a moment, and unknown is not idle."""
    rows = [
        replace(row, consumed_per_sec=None, produced_per_sec=None) if row.partition not in (0, 1, 4, 5) else row
        for row in group(lambda p: p < 4).partitions
    ]
    causes = {finding.cause for finding in diagnose(GroupReading("billing", rows, RATIOS))}
    assert causes == {LagCause.HOT_BROKER}


def test_a_group_of_which_no_rate_is_known_has_causes_that_need_none() -> None:
    rows = [replace(row, consumed_per_sec=None, produced_per_sec=None) for row in group(lambda _p: True).partitions]
    (diagnosis,) = diagnose(GroupReading("billing", rows, RATIOS))
    assert diagnosis.cause is LagCause.TOO_FEW_MEMBERS


reading = st.builds(
    Reading, st.just("t"), st.integers(0, 9), st.sampled_from(LagStatus), st.sampled_from(["a", "b", "c", None]),
    st.just("c"), st.integers(1, 3), st.none() | st.sampled_from([0.0, 10.0, 100.0]), st.none() | st.just(100.0),
    st.sampled_from([0, 0, 0, 50]),
)  # fmt: skip


@settings(max_examples=40)
@given(
    st.lists(reading, min_size=1, max_size=9, unique_by=lambda row: row.partition), st.sampled_from([0.0, 60.0, 900.0]),
    st.none() | st.integers(0, 4),
)  # fmt: skip
def test_members_and_partitions_are_too_few_only_where_each_member_reads_all_it_can(
    rows: list[Reading], rebalancing_s: float, shared_by: int | None
) -> None:
    found = diagnose(GroupReading("g", rows, RATIOS, 0.0, rebalancing_s, shared_by))
    causes = {finding.cause for finding in found}
    if not causes & {LagCause.TOO_FEW_MEMBERS, LagCause.TOO_FEW_PARTITIONS}:
        assert not [finding.helps for finding in found if "--partitions" in finding.helps or "more" in finding.helps]
        return
    lagging = [row for row in rows if row.lags]
    assert {row.member_id for row in rows if row.member_id} <= {row.member_id for row in lagging}
    assert all(row.status is LagStatus.WARN and row.consumed_per_sec != 0 for row in lagging)
    assert not causes & {LagCause.MEMBERS_HANG, LagCause.REBALANCING, LagCause.OPEN_TRANSACTION}


def test_who_reads_nothing_hangs_and_its_group_is_not_told_to_grow() -> None:
    rows = [replace(row, status=LagStatus.STALL) for row in group(lambda _p: True, members=12).partitions]
    (finding,) = diagnose(GroupReading("g", rows, RATIOS))
    assert (finding.cause, finding.figure) == (
        LagCause.MEMBERS_HANG, "no member reads anything; records of 12 partitions of orders wait",
    )  # fmt: skip
