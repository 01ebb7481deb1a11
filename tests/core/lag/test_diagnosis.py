"""Each cause is found where it is and nowhere else: groups of twelve partitions and three members, on three brokers."""

from collections.abc import Callable

import pytest

from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import Cause, GroupReading, Reading, diagnose

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
    "hot broker": (group(lambda p: p < 4), Cause.HOT_BROKER, "broker 1",
                   "4 of 4 partitions behind are led by it, 4 of 12 in all; load 1.50 x mean"),
    "hot partition": (group(lambda p: p == 7, written=hot_key), Cause.HOT_PARTITION, "orders-7",
                      "takes 50% of the records of orders, 1,100/s"),
    "slow member": (group(lambda p: p % 3 == 1), Cause.SLOW_MEMBER, "c1 (m1)",
                    "4 of its 4 partitions behind, it reads 200/s of 400/s; others keep up"),
    "too few members": (group(lambda _p: True), Cause.TOO_FEW_MEMBERS, "billing",
                        "3 members for 12 partitions; 12 of them behind, 600/s read of 1,200/s written"),
    "too few partitions": (group(lambda _p: True, members=12), Cause.TOO_FEW_PARTITIONS, "billing",
                           "12 members read 12 partitions; 12 of them behind, 600/s read of 1,200/s written"),
    "storm": (group(lambda p: p % 5 == 0, rebalances=40.0), Cause.REBALANCE_STORM, "billing",
              "40 rebalances an hour"),
}  # fmt: skip


@pytest.mark.parametrize(("reading", "cause", "subject", "figure"), CASES.values(), ids=CASES.keys())
def test_a_cause_is_named_alone_with_its_figure(reading: GroupReading, cause: Cause, subject: str, figure: str) -> None:
    (found,) = diagnose(reading)
    assert (found.cause, found.subject, found.figure) == (cause, subject, figure)
    assert found.helps


def test_a_group_that_keeps_up_and_a_lag_without_a_pattern_have_no_cause() -> None:
    assert diagnose(group(lambda _p: False, rebalances=40.0)) == ()
    assert diagnose(group(lambda p: p in (0, 5, 10))) == ()


def test_a_broker_that_is_not_hot_is_not_blamed() -> None:
    assert diagnose(group(lambda p: 4 <= p < 8)) == ()


def test_a_member_alone_is_not_called_slow() -> None:
    (found,) = diagnose(group(lambda _p: True, members=1))
    assert found.cause is Cause.TOO_FEW_MEMBERS


def test_a_topic_with_one_written_partition_has_a_hot_one() -> None:
    (found,) = diagnose(group(lambda p: p == 2, written=lambda p: 500.0 if p == 2 else 0.0))
    assert (found.cause, found.subject) == (Cause.HOT_PARTITION, "orders-2")
