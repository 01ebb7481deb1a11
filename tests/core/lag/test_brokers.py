"""Which brokers' readers fall behind: shares and words that the trigger passes on."""

from assignor_core.lag import LagStatus, PartitionVerdict, brokers_falling_behind

LEADERS = {("t", 0): 1, ("t", 1): 1, ("t", 2): 2}


def row(group: str, partition: int, status: LagStatus, lag: int | None = 100) -> PartitionVerdict:
    return PartitionVerdict(group, "t", partition, status, lag)


def test_only_groups_that_read_and_fall_behind_count() -> None:
    verdicts = [
        row("slow", 0, LagStatus.WARN, 50), row("slow", 1, LagStatus.WARN, 70), row("slow", 2, LagStatus.OK),
        row("gone", 0, LagStatus.STOP), row("stuck", 2, LagStatus.STALL), row("lost", 9, LagStatus.WARN),
    ]  # fmt: skip
    behind = brokers_falling_behind(verdicts, LEADERS)
    assert list(behind) == [1]
    assert behind[1].groups_behind == ("slow",)
    assert (behind[1].lag_records, behind[1].groups_reading, behind[1].share) == (120, 2, 0.5)


def test_most_lag_first_and_not_more_names_than_fit() -> None:
    verdicts = [row(f"g{number}", 0, LagStatus.WARN, number) for number in range(5)]
    verdicts.append(row("unknown", 0, LagStatus.WARN, None))
    assert str(brokers_falling_behind(verdicts, LEADERS)[1]) == "g4, g3, g2 and 3 more: 10 records, 6 of 6 groups"
    assert brokers_falling_behind([], LEADERS) == {}
