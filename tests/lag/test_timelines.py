"""Timelines of groups as operators report them, each with variations of its kind: the verdict, why, and the cause."""

import json
import re
from collections.abc import Callable

import pytest

from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import LagCause
from streaming.cluster.described_groups import DescribedGroup, DescribedMember, ShareOffsets
from streaming.collect.group_table import GroupTable, Owners, Reported, view_of
from streaming.collect.reports import consumer_lag_records
from streaming.collect.sample import ClusterSample
from streaming.settings import LagSettings
from streaming.views.group_picture import LagRules
from tests.collect.by_row import PartitionView, partition_table, size_table
from tests.lag.timelines import BEGAN_MS, Group, Log, always, causes, rate, seen, statuses

MINUTE = 60
Offset = Callable[[int], int]


def every(interval_s: int, end: Offset, until_s: int = 10**9, behind: int = 0) -> Offset:
    """Commits all there is, less some records, each so many seconds."""
    return lambda s: max(0, end(min(s, until_s) // interval_s * interval_s) - behind)


def keeps_up(end: Offset, until_s: int = 10**9) -> Offset:
    """Commits each five seconds."""
    return every(5, end, until_s)


# Nobody reads, or some do not.


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 3, 12])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("written", [2, 100])
def test_members_that_all_stop_reading_hang_and_are_not_too_few(partitions: int, members: int, written: int) -> None:
    end = rate(written)
    group = Group([Log(end, keeps_up(end, 900), member=always(f"m{p % members}")) for p in range(partitions)])
    for until_s in (900 + 4 * MINUTE, 900 + 30 * MINUTE):
        (found,) = causes(group, until_s)
        assert found.cause is LagCause.MEMBERS_HANG
        assert "read" in found.figure
        assert {one.status for one in seen(group, until_s)} == {LagStatus.STALL}


def test_one_member_that_hangs_is_named_and_no_other_cause_with_it() -> None:
    end = rate(100)
    logs = [Log(end, keeps_up(end, 900 if p % 3 == 1 else 10**9), member=always(f"m{p % 3}")) for p in range(6)]
    (found,) = causes(Group(logs), 900 + 5 * MINUTE)
    assert (found.cause, found.figure) == (
        LagCause.MEMBERS_HANG, "1 of 3 members read nothing: client-m1; records of 2 partitions of t wait",
    )  # fmt: skip


def test_members_that_read_all_they_can_are_too_few() -> None:
    end = rate(100)
    group = Group([Log(end, every(5, rate(60)), member=always(f"m{p}")) for p in range(3)])
    (found,) = causes(group, 20 * MINUTE)
    assert found.cause is LagCause.TOO_FEW_PARTITIONS


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Reconciling", "Assigning"])
def test_a_group_that_rebalances_for_long_is_said_to(state: str) -> None:
    end = rate(100)
    group = Group(
        [Log(end, keeps_up(end, 900), member=lambda s: "m0" if s < 900 else None)],
        state=lambda s: "Stable" if s < 900 else state,
    )
    (one,) = seen(group, 900 + 12 * MINUTE)
    assert one.status is LagStatus.STALL
    assert "rebalancing for 11 min" in one.why  # since the first sample that shows it
    (found,) = causes(group, 900 + 12 * MINUTE)
    assert (found.cause, found.figure) == (LagCause.REBALANCING, "rebalancing for 11 min")


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_nobody_is_said_to_own_what_no_sample_shows_an_owner_of(state: str) -> None:
    """Assignments that can't be read, or a rebalance that began at the newest sample: members are there."""
    until_s, end = 900 + 10 * MINUTE, rate(100)
    log = Log(end, keeps_up(end, 900), member=lambda s: "m0" if state != "Stable" and s < until_s else None)
    (one,) = seen(Group([log], state=lambda s: state if s >= until_s else "Stable"), until_s)
    assert one.status is LagStatus.STALL
    assert one.why.endswith("though the group has members")


# Words.


def test_one_record_is_told_in_the_singular() -> None:
    (waits,) = seen(Group([Log(lambda s: 54 + (s >= 100), always(54))]), 30 * MINUTE)
    assert waits.why.startswith("1 record waits, no commit for 28 min")
    (deleted,) = seen(Group([Log(always(5), always(4), start=lambda s: 5 * (s >= 900))]), 1_000)
    assert deleted.why.startswith("1 record was deleted before it was read; nothing to read")
    (later,) = seen(Group([Log(always(5), always(4), start=always(5))]), 1_000)
    assert later.why == "nothing to read; 1 record was deleted unread"


def test_a_lag_that_is_not_known_now_is_not_told_as_nothing_to_read() -> None:
    """The newest sample has no commit; the verdict is that of before for one more window."""
    end = rate(100)
    (one,) = seen(Group([Log(end, lambda s: end(s // 5 * 5) if s < 900 else None)]), 930)
    assert (one.status, one.row["lag_records"]) == (LagStatus.OK, None)
    assert one.why == "the lag is not known now; unknown if it lasts another window"


# Transactions.


@pytest.mark.parametrize("left", [1, 2, 5])
@pytest.mark.parametrize("quiet_s", [20, 70 * MINUTE])
@pytest.mark.parametrize("member", ["m0", None])
def test_markers_of_transactions_that_nobody_can_read_are_no_lag(left: int, quiet_s: int, member: str | None) -> None:
    """Clients that commit the offset after the last record, of a topic that goes idle after a transaction."""
    end = rate(1, until_s=1_200)
    group = Group([Log(end, every(5, end, behind=left), member=always(member))], state=always("Stable"))
    (one,) = seen(group, 1_200 + quiet_s)
    assert one.status is LagStatus.OK
    assert not causes(group, 1_200 + quiet_s)
    if quiet_s > MINUTE:
        offsets = "the last offset" if left == 1 else f"the last {left} offsets"
        assert one.why == f"nothing to read, as it seems: transaction markers take {offsets}"


def test_records_of_a_topic_that_is_written_are_not_called_markers() -> None:
    """The newest lag is the least that was seen, as it now and then is where the group keeps up."""
    end = rate(1)
    (one,) = seen(Group([Log(end, every(5, end, behind=2), member=always("m0"))], state=always("Stable")), 20 * MINUTE)
    assert one.status is LagStatus.OK
    assert re.match(r"\d+ records wait", one.why), one.why


def test_one_record_that_nobody_reads_is_lag_on_a_topic_that_was_read_to_its_end() -> None:
    """A record arrives, and the member hangs: it is not left as a marker would be."""
    group = Group([Log(lambda s: 54 + (s >= 1_200), always(54))])
    assert seen(group, 1_200 + 15 * MINUTE)[0].status is LagStatus.STALL


# The log ends below the commit, or starts above it.


@pytest.mark.parametrize("end", [always(500), rate(0.5), rate(100)], ids=["idle", "slow", "fast"])
@pytest.mark.parametrize("committed", [1_000_000, 5_000_000_000])
@pytest.mark.parametrize("member", ["m0", None])
def test_a_commit_beyond_the_log_end_is_never_well(end: Offset, committed: int, member: str | None) -> None:
    log = Log(end, always(committed), member=always(member))
    group = Group([log], state=always("Stable" if member else "Empty"))
    for until_s in (10, 50, 3 * MINUTE, 20 * MINUTE):
        (one,) = seen(group, until_s)
        assert one.status is (LagStatus.STALL if member else LagStatus.STOP)
        assert "beyond the log end" in one.why
    assert seen(group, 0)[0].status is LagStatus.UNKNOWN


@pytest.mark.long
def test_a_topic_made_again_is_an_alarm_until_the_consumer_begins_anew() -> None:
    """The log end falls; after ten minutes somebody resets the offset."""

    def end(second: int) -> int:
        return 100 * (second if second < 900 else second - 900)

    def committed(second: int) -> int:
        return 100 * min(second, 900) if second < 1_500 else end(second - 5)

    found = statuses(Group([Log(end, committed)]), range(900, 2_000, 110))
    assert {status for at, status in found.items() if 920 <= at < 1_500} == {"STALL"}
    assert {status for at, status in found.items() if at >= 1_500} == {"OK"}


def test_commits_that_are_read_after_the_log_end_are_not_beyond_it() -> None:
    end = rate(1_000)
    group = Group([Log(end, lambda s: 1_000 * s + 300)])
    assert set(statuses(group, range(70, 1_200, 210)).values()) == {"OK"}


@pytest.mark.long
@pytest.mark.parametrize("member", ["m0", None])
def test_records_deleted_unread_are_reported_once_and_wait_no_more(member: str | None) -> None:
    deleted_s = 900
    group = Group(
        [Log(always(5_000), always(1_000), start=lambda s: 0 if s < deleted_s else 5_000, member=always(member))],
        state=always("Stable" if member else "Empty"),
    )
    for until_s in range(deleted_s + 10, deleted_s + 8 * MINUTE, 150):
        (one,) = seen(group, until_s)
        assert one.status is LagStatus.WARN
        assert "4,000 records were deleted before they were read" in one.why
    for until_s in (deleted_s + 12 * MINUTE, deleted_s + 90 * MINUTE):
        (one,) = seen(group, until_s)
        assert (one.status, one.row["lag_records"], one.row["lag_seconds"]) == (LagStatus.OK, 0, 0.0)
        assert one.why == "nothing to read; 4,000 records were deleted unread"


@pytest.mark.parametrize("deleted_each_s", [30, 300])
def test_records_that_are_deleted_once_they_are_read_are_not_lost(deleted_each_s: int) -> None:
    """Kafka Streams deletes what it has read of its repartition topics; the rate of writing grows at 900 s."""

    def end(second: int) -> int:
        return 10 * second + 1_000 * max(0, second - 900)

    read_to = keeps_up(end)
    group = Group([Log(end, read_to, start=lambda s: read_to(s // deleted_each_s * deleted_each_s))])
    assert set(statuses(group, range(900, 2_400, 290)).values()) == {"OK"}


def test_what_waits_counts_from_the_log_start() -> None:
    group = Group([Log(lambda s: 5_000 + s, always(1_000), start=always(5_000), member=always(None))],
                  state=always("Empty"))  # fmt: skip
    (one,) = seen(group, 1_800)
    assert (one.status, one.row["lag_records"]) == (LagStatus.STOP, 1_800)


# Commits that are rare.


@pytest.mark.parametrize("minutes", [7, 10, 15, *(pytest.param(one, marks=pytest.mark.long) for one in (30, 60))])
@pytest.mark.parametrize("written", [1, 100])
def test_rare_commits_are_well_and_a_stop_is_found_within_twice_the_usual_time(minutes: int, written: int) -> None:
    interval_s, end = minutes * MINUTE, rate(written)
    stop_s = 4 * interval_s
    group = Group([Log(end, every(interval_s, end, until_s=stop_s))])
    cycle = range(2 * interval_s + 30, 3 * interval_s, max(100, interval_s // 3))
    assert set(statuses(group, [*cycle, 3 * interval_s - 10]).values()) == {"OK"}
    assert statuses(group, [stop_s + 2 * interval_s]) == {stop_s + 2 * interval_s: "STALL"}


@pytest.mark.parametrize("minutes", [20, pytest.param(60, marks=pytest.mark.long)])
def test_a_batch_that_runs_each_hour_is_no_outage(minutes: int) -> None:
    """It starts, reads all, commits some times, and ends."""
    interval_s, end = minutes * MINUTE, rate(10)

    def run(second: int) -> bool:
        return second % interval_s < 120

    group = Group(
        [Log(end, lambda s: end(s if run(s) else s // interval_s * interval_s + 120),
             member=lambda s: "m0" if run(s) else None)],
        state=lambda s: "Stable" if run(s) else "Empty",
    )  # fmt: skip
    times = range(3 * interval_s + 180, 4 * interval_s, interval_s // 4)
    assert set(statuses(group, times).values()) == {"OK"}


def test_one_outage_is_no_habit() -> None:
    end = rate(100)

    def committed(s: int) -> int:
        return end((900 if 900 <= s < 3_600 else 7_200 if s >= 7_200 else s) // 5 * 5)

    assert statuses(Group([Log(end, committed)]), [7_200 + 4 * MINUTE]) == {7_200 + 4 * MINUTE: "STALL"}


# Members and partitions.


def test_two_services_under_one_group_id_and_one_dies() -> None:
    end = rate(100)
    dead = Log(end, keeps_up(end, 900), topic="b", member=lambda s: "m1" if s < 900 else None)
    group = Group([Log(end, keeps_up(end), topic="a"), dead])
    for until_s in (900 + 4 * MINUTE, 900 + 30 * MINUTE):
        well, ill = seen(group, until_s)
        assert (well.status, ill.status) == (LagStatus.OK, LagStatus.STOP)
        assert "no member owns it" in ill.why


def test_offsets_of_a_topic_that_was_given_up_long_ago_are_left_over() -> None:
    end = rate(100)
    group = Group([Log(end, keeps_up(end), topic="a"), Log(end, always(9), topic="b", member=always(None))])
    assert [one.status for one in seen(group, 3_600)] == [LagStatus.OK, LagStatus.UNKNOWN]


def test_a_member_that_never_commits_gets_a_verdict_after_a_while() -> None:
    group = Group([Log(rate(100), always(None))])
    assert seen(group, 600)[0].status is LagStatus.UNKNOWN
    (one,) = seen(group, 25 * MINUTE)
    assert one.status is LagStatus.STALL
    assert "nothing was ever committed" in one.why


def test_a_partition_that_members_have_not_noticed_is_shown_and_later_an_alarm() -> None:
    end = rate(100)
    added = Log(lambda s: end(s - 900) if s >= 900 else None, always(None), member=always(None))
    group = Group([Log(end, keeps_up(end)), added])
    assert [one.status for one in seen(group, 900 + 3 * MINUTE)] == [LagStatus.OK, LagStatus.UNKNOWN]
    assert [one.status for one in seen(group, 900 + 25 * MINUTE)] == [LagStatus.OK, LagStatus.STOP]


def test_added_partitions_are_reported_by_the_collector_through_to_the_verdict() -> None:
    """Members own the partitions that their metadata shows; the topic has two more, which nobody reads."""
    described = DescribedGroup("Stable", (DescribedMember("m0", "c", owned=(("t", 0),)),))
    group = view_of("g", None, "Stable", described, ShareOffsets({("t", 0): 5}), reported=Reported({"t": 3}, 10),
                    read_ms=1, known=Owners())  # fmt: skip
    views = {("t", n): PartitionView("id", 1, (1,), frozenset(), 0, 70) for n in range(3)}
    look = ClusterSample(1, {1: None}, partition_table(views), size_table({}), {}, {}, GroupTable({"g": group}))
    records = [json.loads(value) for _, value in consumer_lag_records("c", look)]
    assert [record["partition"] for record in records] == [0, 1, 2]
    end = rate(100)
    added = [
        Log(
            lambda s: end(s - 900) if s >= 900 else None, always(record["committed_offset"]),
            member=always(record["member_id"]),
        )
        for record in records[1:]
    ]  # fmt: skip
    timeline = Group([Log(end, keeps_up(end)), *added], state=always(records[1]["group_state"]))
    assert [one.status for one in seen(timeline, 900 + 25 * MINUTE)] == [LagStatus.OK, LagStatus.STOP, LagStatus.STOP]


@pytest.mark.parametrize("state", [None, "Unknown"])
def test_samples_without_members_and_state_do_not_say_that_nobody_is_there(state: str | None) -> None:
    end = rate(100)
    group = Group([Log(end, keeps_up(end, 900), member=always(None))], state=always(state))
    (one,) = seen(group, 900 + 10 * MINUTE)
    assert one.status is LagStatus.UNKNOWN
    assert one.why.endswith("whether a member owns it is unknown")


# Resets, and lags like a saw.


@pytest.mark.parametrize("factor", [1.2, 1.5, 3])
@pytest.mark.parametrize("reset_s", [1_200, pytest.param(5_400, marks=pytest.mark.long)])
def test_an_offset_set_back_is_rewind_and_then_well(factor: float, reset_s: int) -> None:
    end = rate(100)
    group = Group(
        [Log(end, lambda s: end(s // 5 * 5) if s < reset_s else min(end(s), int(100 * factor * (s - reset_s))))]
    )
    found = list(statuses(group, range(reset_s + 70, reset_s + 30 * MINUTE, 250)).values())
    assert set(found) == {"REWIND", "OK"}
    assert found == sorted(found, reverse=True)


@pytest.mark.long
@pytest.mark.parametrize("interval_s", [70, 90, 300, 600])
def test_rates_of_who_commits_rarely_do_not_say_when_it_has_caught_up(interval_s: int) -> None:
    end = rate(100)
    group = Group([Log(end, every(interval_s, end))])
    assert not [one.why for at in range(2_000, 2_600, 130) for one in seen(group, at) if "caught up" in one.why]


def test_who_catches_up_says_when() -> None:
    group = Group([Log(lambda s: 100_000 + 100 * s, lambda s: 150 * s)])
    (one,) = seen(group, 1_000)
    assert one.why == "50,000 records wait, caught up in 17 min"


@pytest.mark.parametrize("member", ["m0", None])
def test_an_offset_set_back_by_one_record_is_no_marker(member: str | None) -> None:
    """The group had committed past it, so it is a record."""
    log = Log(always(9), lambda s: 9 - (s >= 900), member=always(member))
    (one,) = seen(Group([log], state=always("Stable" if member else "Empty")), 1_000)
    assert (one.status, one.why) == (LagStatus.REWIND, "set back by 1 record, 1 to read again")


# What the settings allow.


def rules(**settings: object) -> LagRules:
    return LagRules.of(LagSettings.model_validate(settings))


def test_a_remainder_that_is_allowed_is_no_lag() -> None:
    """A thousand records of an aborted transaction, at the end of a topic that was read to its end before."""
    end = rate(1, until_s=1_200)
    group = Group([Log(lambda s: end(s) + (1_000 if s > 1_200 else 0), end)])
    until_s = 1_200 + 30 * MINUTE
    assert seen(group, until_s)[0].status is LagStatus.STALL
    assert seen(group, until_s, rules=rules(allowed_records={"^other$": 9_999, "^g$": 1_000}))[0].status is LagStatus.OK
    assert seen(group, until_s, rules=rules(allowed_records={"^g$": 999}))[0].status is LagStatus.STALL


def test_records_may_wait_for_as_long_as_is_allowed() -> None:
    end = rate(100)
    group = Group([Log(end, keeps_up(end, 900))])
    allowed = rules(allowed_ms={"g": 40 * MINUTE * 1_000})
    assert seen(group, 900 + 38 * MINUTE, rules=allowed)[0].status is LagStatus.OK
    assert seen(group, 900 + 45 * MINUTE, rules=allowed)[0].status is LagStatus.STALL


@pytest.mark.long
def test_a_batch_is_no_outage_outside_its_schedule_and_one_that_does_not_run_is() -> None:
    """It ran until 1,200 s, and is to read again for twenty minutes an hour after it began."""
    minute = BEGAN_MS // 60_000 % 1_440
    begins, ends = ([f"{at // 60:02}:{at % 60:02}" for at in (minute + off, minute + off + 60)] for off in (0, 20))
    schedule = rules(schedules={"^g$": [f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True)]})
    end = rate(100)
    group = Group(
        [Log(end, keeps_up(end, 1_200), member=lambda s: "m0" if s < 1_200 else None)],
        state=lambda s: "Stable" if s < 1_200 else "Empty",
    )
    assert {seen(group, at, rules=schedule)[0].status for at in (1_260, 1_500, 2_400, 3_590)} == {LagStatus.OK}
    assert {seen(group, at, rules=schedule)[0].status for at in (3_600 + 240, 3_600 + 1_140, 7_000)} == {LagStatus.STOP}


# Open transactions.


def test_a_record_of_an_open_transaction_is_no_marker() -> None:
    """The group's last commit shows in the same sample as the record, as if it had come after a marker."""
    log = Log(lambda s: 54 + (s > 900), lambda s: 54 if s > 900 else 40, stable=lambda s: 54 if s > 900 else None)
    (one,) = seen(Group([log]), 2_400)
    assert one.status is LagStatus.STALL
    assert one.why.startswith("an open transaction holds 1 record back, no commit for ")
    (found,) = causes(Group([log]), 2_400)
    assert (found.cause, found.figure) == (
        LagCause.OPEN_TRANSACTION, "holds 1 record of 1 partition back from who reads committed records",
    )  # fmt: skip


@pytest.mark.parametrize("held", [2, 5_000])
def test_an_open_transaction_that_holds_readers_back_is_named(held: int) -> None:
    """Readers have read all before it."""
    stable_s, stop = 900, 90_000

    def end(second: int) -> int:
        return 100 * second if second < stable_s else stop + min(held, 100 * (second - stable_s))

    group = Group([Log(end, lambda s: min(end(s // 5 * 5), stop), stable=lambda s: stop if s > stable_s else None)] * 3)
    one = seen(group, 1_800)[0]
    assert one.status is LagStatus.STALL
    assert one.why.startswith(f"an open transaction holds {held:,} records back, no commit for ")
    assert [finding.cause for finding in causes(group, 1_800)] == [LagCause.OPEN_TRANSACTION]
