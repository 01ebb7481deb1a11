"""Two observations into rates, by cases a reader can check by head; what is unknown stays unknown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.live import NO_LEADER, PartitionKey, ReplicaKey
from streaming.collect.group_table import GroupTable, GroupView
from streaming.collect.rates import BrokerRates, broker_rates, replica_rates
from streaming.collect.reports import consumer_lag_records
from streaming.collect.sample import BrokerCounters, ClusterSample
from streaming.contract.rates import RATES
from streaming.contract.records import RATE_MAX
from tests.collect.by_row import PartitionView, partition_table, partition_views, rates_of, size_table, sizes_of
from tests.collect.sample_records import byte_rate_records

KEY = ("t", 0)


def look(
    time_ms: int,
    size: int,
    end: int,
    *,
    start: int = 0,
    leader: int = 1,
    topic_id: str = "id",
    sizes: dict[int, int] | None = None,
    adding: frozenset[int] = frozenset(),
    counters: dict[int, BrokerCounters] | None = None,
    committed: int | None = None,
) -> ClusterSample:
    hosted = {leader: size} if sizes is None else sizes
    return ClusterSample(
        time_ms=time_ms,
        racks=dict.fromkeys(sorted({1, 2} | set(hosted))),
        partitions=partition_table({KEY: PartitionView(topic_id, leader, tuple(hosted), adding, start, end)}),
        sizes=size_table({(broker, KEY): held for broker, held in hosted.items()}),
        log_dirs={},
        counters=counters or {},
        groups=GroupTable({} if committed is None else {"g": GroupView("Stable", {KEY: committed}, {})}),
    )


@pytest.mark.parametrize(
    ("before", "after", "bytes_in"),
    [
        (look(0, 1_000, 10), look(2_000, 3_000, 30), 1_000.0),
        # The 60 records that remain have 6,000 bytes, 100 each, and 20 records were appended in 2 s.
        (look(0, 9_000, 90), look(2_000, 6_000, 110, start=50), 1_000.0),
        (look(0, 9_000, 90), look(2_000, 0, 110, start=110), 1_000.0),
        (look(0, 0, 0), look(2_000, 0, 20, start=20), None),
        (look(0, 1_000, 10), look(1_000, 2_000, 20, leader=2), 1_000.0),
        (look(0, 1_000, 10), look(1_000, 50, 1, topic_id="other"), None),
        (look(0, 1_000, 10), look(1_000, 1_000, 10), 0.0),
    ],
    ids=[
        "growth", "by offsets where retention ran", "by the records of before where it left nothing",
        "no record was ever seen: unknown", "by offsets of a new leader", "made again: unknown", "idle: zero",
    ],
)  # fmt: skip
def test_bytes_in_of_the_leader(before: ClusterSample, after: ClusterSample, bytes_in: float | None) -> None:
    leader = partition_views(after.partitions)[KEY].leader
    shown = rates_of(replica_rates(before, after))[(leader, KEY)].bytes_in
    assert shown == (bytes_in if bytes_in is None else pytest.approx(bytes_in))


def of_topic(topic: str, time_ms: int, end: int, *, start: int = 0) -> ClusterSample:
    """One partition of 100 bytes a record, without a group that commits."""
    key = (topic, 0)
    seen = look(time_ms, 100 * (end - start), end)
    return replace(
        seen, partitions=partition_table({key: PartitionView("id", 1, (1,), frozenset(), start, end)}),
        sizes=size_table({(1, key): 100 * (end - start)}),
    )  # fmt: skip


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state", "ours", "t"])
def test_bytes_out_without_commits_are_known_of_kafkas_own_topics_and_of_ours(topic: str) -> None:
    before, after = of_topic(topic, 0, 10), of_topic(topic, 1_000, 30)
    rates = replica_rates(before, after, own_topics=("ours",))
    read = {"ours": 2_000.0, "t": None}.get(topic, 0.0)
    assert rates_of(rates)[(1, (topic, 0))].bytes_out == (read if read is None else pytest.approx(read))
    assert broker_rates(before, after, rates)[1]["bytes_out_per_sec"] == read


@pytest.mark.parametrize(("start", "end", "read"), [(30, 30, 0.0), (30, 40, None), (29, 30, None)])
def test_of_an_empty_log_nothing_is_read(start: int, end: int, read: float | None) -> None:
    rates = replica_rates(of_topic("t", 0, 30, start=30), of_topic("t", 1_000, end, start=start))
    assert rates_of(rates)[(1, ("t", 0))].bytes_out == read


def read_over_looks(looks: Sequence[tuple[int, int | None]], *, every_ms: int = 10_000) -> list[float | None]:
    """Records that count as read between looks, each with the log end and what the group has committed by then."""
    seen = [
        look(number * every_ms, 100 * end, end, committed=committed) for number, (end, committed) in enumerate(looks)
    ]
    read = list[float | None]()
    unread = None
    for before, after in pairwise(seen):
        rates = replica_rates(before, after, unread=unread)
        unread, rate = rates.unread, rates_of(rates)[(1, KEY)].bytes_out
        read.append(None if rate is None else round(rate * every_ms / 1000 / 100, 3))
    return read


def test_a_group_that_commits_to_and_fro_does_not_read_the_log_each_time() -> None:
    """The whole log once, as the collector has just started, and then once an hour at the most."""
    held, hours = 1_000_000, 2
    looks = [(held, 0 if number % 2 else held) for number in range(hours * 60)]
    counted = sum(row or 0.0 for row in read_over_looks(looks, every_ms=60_000))
    assert held * hours / 2 <= counted <= held * (hours + 1)


def test_a_new_group_that_claims_a_whole_log_counts_as_reading_what_is_written() -> None:
    looks: list[tuple[int, int | None]] = [(360_000, None), (360_000, None), (360_000, 0), (360_500, 360_500)]
    assert read_over_looks(looks) == [None, None, pytest.approx(500 + 360_500 / 360)]


@pytest.mark.long
def test_readers_that_keep_up_or_catch_up_or_commit_rarely_count_as_they_read() -> None:
    steady = [(1_000 + 10 * number, 1_000 + 10 * number) for number in range(50)]
    assert set(read_over_looks(steady)) == {10.0}
    rare = [(end, end // 100 * 100) for end, _ in steady]
    assert sum(row or 0.0 for row in read_over_looks(rare)) == 400.0
    behind = [(end, 1_000) for end, _ in steady[:40]] + steady[40:]
    assert sum(row or 0.0 for row in read_over_looks(behind)) == 490.0


def test_a_copy_under_way_is_no_load() -> None:
    before = look(0, 1_000, 10)
    after = look(1_000, 2_000, 20, sizes={1: 2_000, 2: 500}, adding=frozenset({2}))
    assert rates_of(replica_rates(before, after))[(2, KEY)].bytes_in is None
    assert rates_of(replica_rates(before, after))[(1, KEY)].bytes_in == 1_000.0


def test_a_follower_takes_in_what_its_leader_is_given() -> None:
    before = look(0, 1_000, 10, sizes={1: 1_000, 2: 900})
    after = look(1_000, 2_000, 20, sizes={1: 2_000, 2: 1_900})
    rates = rates_of(replica_rates(before, after))[(2, KEY)]
    assert (rates.role, rates.bytes_in, rates.messages_in) == ("follower", 1_000.0, None)


def counters(bytes_in: float, replication: float = 0.0, reassignment: float = 0.0) -> dict[int, BrokerCounters]:
    counted = {"bytes_in": bytes_in, "replication_bytes_in": replication, "reassignment_bytes_in": reassignment}
    return {1: BrokerCounters({rate.stem: 0.0 for rate in RATES} | counted)}


def figures(rates: BrokerRates, *stems: str) -> tuple[float | None, ...]:
    return tuple(rates[f"{stem}_per_sec"] for stem in stems)


def test_a_brokers_own_counters_win_and_reassignment_stands_apart() -> None:
    before = look(0, 1_000, 10, counters=counters(0))
    after = look(2_000, 3_000, 30, counters=counters(4_000, replication=1_000, reassignment=600))
    totals = broker_rates(before, after, replica_rates(before, after))[1]
    assert figures(totals, "bytes_in", "replication_bytes_in", "reassignment_bytes_in") == (2_000.0, 200.0, 300.0)


def test_a_restarted_brokers_counters_are_not_used() -> None:
    before = look(0, 1_000, 10, counters=counters(9_000))
    after = look(1_000, 2_000, 20, counters=counters(10))
    assert broker_rates(before, after, replica_rates(before, after))[1]["bytes_in_per_sec"] == 1_000.0  # of its leaders


def test_one_unknown_leader_makes_a_summed_total_unknown() -> None:
    before, after = look(0, 1_000, 10), look(1_000, 50, 1, topic_id="other")
    assert broker_rates(before, after, replica_rates(before, after))[1]["bytes_in_per_sec"] is None
    assert broker_rates(before, after, replica_rates(before, after))[2]["bytes_in_per_sec"] == 0.0  # it leads nothing


def placed(
    time_ms: int, leaders: dict[str, int], replicas: Mapping[str, tuple[int, ...]], *unread: int
) -> ClusterSample:
    """Topics of one partition each, written at 1,000 bytes/s, on brokers 1 to 3; the log dirs of some are `unread`."""
    keys: dict[str, PartitionKey] = {topic: (topic, 0) for topic in leaders}
    views = {
        keys[topic]: PartitionView(topic, leader, replicas[topic], frozenset(), 0, time_ms // 100)
        for topic, leader in leaders.items()
    }
    sizes: dict[ReplicaKey, int] = {
        (broker, keys[topic]): time_ms for topic, hosts in replicas.items() for broker in hosts if broker not in unread
    }
    return ClusterSample(
        time_ms, dict.fromkeys((1, 2, 3)), partition_table(views), size_table(sizes), {}, {}, GroupTable({})
    )


def test_a_broker_whose_log_dirs_were_not_read_is_unknown_and_not_idle() -> None:
    leaders = {"a": 1, "b": 2, "c": 3}
    replicas = {"a": (1, 2), "b": (2, 3), "c": (3, 1)}
    before, after = placed(1_000, leaders, replicas), placed(2_000, leaders, replicas, 2)
    totals = broker_rates(before, after, replica_rates(before, after))
    assert [figures(totals[broker], "bytes_in", "replication_bytes_in") for broker in (1, 2, 3)] == [
        (1_000.0, 1_000.0), (None, None), (1_000.0, 1_000.0),
    ]  # fmt: skip
    records = byte_rate_records("c", before, after, replica_rates(before, after), totals)
    of_broker_2 = [value for key, value in records if key == b"2"]
    assert len(of_broker_2) == 1
    assert b'"bytes_in_per_sec":null' in of_broker_2[0]  # so it doesn't count as a broker that has reported


def test_a_broker_that_leads_nothing_and_told_nothing_has_not_reported() -> None:
    leaders, replicas = {"a": 1}, {"a": (1, 2)}
    before, after = placed(1_000, leaders, replicas), placed(2_000, leaders, replicas, 2)
    totals = broker_rates(before, after, replica_rates(before, after))
    assert figures(totals[2], "bytes_in", "messages_in", "replication_bytes_in") == (None, None, None)
    assert figures(totals[3], "bytes_in", "messages_in", "replication_bytes_in") == (0.0, 0.0, 0.0)  # empty


def test_a_replica_whose_log_is_not_there_yet_makes_its_sums_unknown() -> None:
    before = placed(1_000, {"a": 1, "b": 2}, {"a": (1, 2), "b": (2, 1)})
    after = placed(2_000, {"a": 1, "b": 2, "new": 1}, {"a": (1, 2), "b": (2, 1), "new": (1, 2)})
    sizes = {key: size for key, size in sizes_of(after.sizes).items() if key[1] != ("new", 0)}
    after = replace(after, sizes=size_table(sizes))
    totals = broker_rates(before, after, replica_rates(before, after))
    assert figures(totals[1], "bytes_in", "replication_bytes_in") == (None, 1_000.0)
    assert figures(totals[2], "bytes_in", "replication_bytes_in") == (1_000.0, None)


def test_a_replica_that_is_being_copied_leaves_its_brokers_sums_known() -> None:
    """Else every broker that a plan moves something to would be unknown for as long as that takes."""

    def moving(time_ms: int, *unread: int) -> ClusterSample:
        look = placed(time_ms, {"a": 1, "b": 2}, {"a": (1, 2), "b": (2, 1, 3)}, *unread)
        views = {
            **partition_views(look.partitions),
            ("b", 0): replace(partition_views(look.partitions)["b", 0], adding_replicas=frozenset({1, 3})),
        }
        return replace(look, partitions=partition_table(views))

    before = moving(1_000)
    for unread, of_broker_3 in (((), (0.0, 0.0)), ((3,), (None, 0.0))):
        after = moving(2_000, *unread)
        totals = broker_rates(before, after, replica_rates(before, after))
        assert [figures(totals[broker], "bytes_in", "replication_bytes_in") for broker in (1, 2, 3)] == [
            (1_000.0, 0.0), (1_000.0, 1_000.0), of_broker_3,
        ]  # fmt: skip


def test_a_partition_without_a_leader_is_nobodys_load() -> None:
    replicas = {"a": (1, 2), "offline": (1, 3)}
    before = placed(1_000, {"a": 1, "offline": NO_LEADER}, replicas)
    after = placed(2_000, {"a": 1, "offline": NO_LEADER}, replicas, 3)
    totals = broker_rates(before, after, replica_rates(before, after))
    assert [figures(totals[broker], "bytes_in", "replication_bytes_in") for broker in (1, 2, 3)] == [
        (1_000.0, 0.0), (0.0, 1_000.0), (0.0, 0.0),
    ]  # fmt: skip


def reads(count: float, **topics: float) -> dict[int, BrokerCounters]:
    return {1: BrokerCounters({rate.stem: 0.0 for rate in RATES} | {"bytes_in": count, "bytes_out": count}, topics)}


@pytest.mark.parametrize(
    ("earlier", "later", "bytes_out"),
    [
        (reads(0, t=100), reads(9, t=2_100), 2_000.0),  # the broker's own count wins over what commits tell, 500
        (reads(0), reads(9), 0.0),  # never read there
        (reads(0), reads(9, t=300), 300.0),  # read for the first time
        (reads(0, t=9_000), reads(9, t=100), 500.0),  # fell: by commits
        (reads(0, t=9_000), reads(9), 500.0),  # gone: by commits
        (reads(9, t=100), reads(0, t=2_100), 500.0),  # above what it was, but the broker has restarted
        (reads(9), reads(0), 500.0),  # not read since the restart; before it, nobody knows
    ],
)
def test_bytes_out_by_the_topics_counter_and_by_commits_where_it_can_not_tell(
    earlier: dict[int, BrokerCounters], later: dict[int, BrokerCounters], bytes_out: float
) -> None:
    before = look(0, 1_000, 10, counters=earlier, committed=0)
    after = look(1_000, 2_000, 20, counters=later, committed=5)
    assert rates_of(replica_rates(before, after))[(1, KEY)].bytes_out == pytest.approx(bytes_out)


PAIR: list[PartitionKey] = [("t", 0), ("t", 1)]


def pair(time_ms: int, ends: tuple[int, int], *groups: tuple[int, int], sent: float | None = None) -> ClusterSample:
    """Two partitions on broker 1 with 100 bytes a record, what each group has committed, and the topic's counter."""
    logs = dict(zip(PAIR, ends, strict=True))
    committed = {f"g{index}": dict(zip(PAIR, row, strict=True)) for index, row in enumerate(groups)}
    return ClusterSample(
        time_ms,
        {1: None},
        partition_table({key: PartitionView("id", 1, (1,), frozenset(), 0, end) for key, end in logs.items()}),
        size_table({(1, key): 100 * end for key, end in logs.items()}),
        {},
        {} if sent is None else reads(sent, t=sent),
        GroupTable({name: GroupView("Stable", offsets, {}) for name, offsets in committed.items()}),
    )


@pytest.mark.parametrize(
    ("before", "after", "bytes_out"),
    [
        (pair(0, (10, 10), (0, 0), (0, 0)), pair(1_000, (40, 20), (20, 5), (10, 5)), [3_000.0, 1_000.0]),
        (
            pair(0, (10, 10), (0, 0), (0, 0), sent=0),
            pair(1_000, (20, 40), (20, 5), (10, 5), sent=400),
            [300.0, 100.0],
        ),
        (pair(0, (10, 10), sent=0), pair(1_000, (40, 20), sent=400), [300.0, 100.0]),
        (pair(0, (10, 10), sent=0), pair(1_000, (10, 10), sent=400), [200.0, 200.0]),
        (pair(0, (0, 10)), pair(1_000, (0, 10)), [0.0, None]),
    ],
    ids=["all groups", "the counter by what groups read", "by what is written", "evenly", "an empty log is not read"],
)
def test_bytes_out_of_a_topic_are_those_of_its_partitions(
    before: ClusterSample, after: ClusterSample, bytes_out: list[float | None]
) -> None:
    rates = rates_of(replica_rates(before, after))
    shown = [rates[1, key].bytes_out for key in PAIR]
    assert shown == [rate if rate is None else pytest.approx(rate) for rate in bytes_out]


def test_a_counter_that_fell_is_unknown_where_nobody_commits() -> None:
    before, after = look(0, 1_000, 10, counters=reads(9, t=9)), look(1_000, 2_000, 20, counters=reads(0))
    assert rates_of(replica_rates(before, after))[(1, KEY)].bytes_out is None


def test_each_part_is_divided_by_the_time_between_its_own_readings() -> None:
    # The looks began 10 s apart; broker 1 was read at once, and late.
    before = look(0, 0, 0, counters=reads(0, t=0))
    after = look(10_000, 25_000, 200, counters=reads(40_000, t=40_000))
    after = replace(after, read_ms={("offsets", 1): 20_000, ("sizes", 1): 25_000, ("counters", 1): 40_000})
    rates = replica_rates(before, after)
    assert rates_of(rates)[(1, KEY)].bytes_in == rates_of(rates)[(1, KEY)].bytes_out == 1_000.0
    assert rates_of(rates)[(1, KEY)].messages_in == 10.0
    assert broker_rates(before, after, rates)[1]["bytes_in_per_sec"] == 1_000.0


def test_partitions_are_divided_by_the_time_of_their_own_broker() -> None:
    leaders, replicas = {"a": 1, "b": 2}, {"a": (1,), "b": (2,)}
    after = replace(placed(6_000, leaders, replicas), read_ms={(part, 1): 2_000 for part in ("offsets", "sizes")})
    rates = rates_of(replica_rates(placed(0, leaders, replicas), after))
    assert {topic: (row.bytes_in, row.messages_in) for (_, (topic, _)), row in rates.items()} == {
        "a": (3_000.0, 30.0), "b": (1_000.0, 10.0),
    }  # fmt: skip


def test_an_idle_groups_offsets_from_one_fetch_are_no_reads_and_not_unknown() -> None:
    group = GroupTable({"g": GroupView("Empty", {KEY: 5}, {}, read_ms=500)})
    before, after = replace(look(0, 1_000, 10), groups=group), replace(look(1_000, 2_000, 20), groups=group)
    assert rates_of(replica_rates(before, after))[(1, KEY)].bytes_out == 0.0


@pytest.mark.parametrize(
    ("first", "last", "records"),
    [
        (900, 10**16, 200),  # to the end of the log, wherever the commit is
        (10**16, 10**16, 0),  # still there
        (10**16, 1_050, 50),  # from the end of then
        (1_001, 1_050, 50),  # read a moment after the end
        (900, 950, 50),
    ],
)
def test_a_commit_beyond_the_end_of_the_log_reads_to_that_end(first: int, last: int, records: int) -> None:
    before, after = look(0, 100_000, 1_000, committed=first), look(10_000, 110_000, 1_100, committed=last)
    assert rates_of(replica_rates(before, after))[(1, KEY)].bytes_out == pytest.approx(records * 100 / 10)


def test_without_both_ends_commits_are_taken_as_they_are() -> None:
    """An end that only one look knows would cut the one commit and not the other."""
    before, after = look(0, 100_000, 1_000, committed=1_001), look(10_000, 110_000, 1_100, committed=1_001)
    unknown = partition_table({KEY: replace(partition_views(before.partitions)[KEY], log_end_offset=None)})
    assert rates_of(replica_rates(replace(before, partitions=unknown), after))[(1, KEY)].bytes_out == 0.0


def test_a_rate_beyond_the_contract_is_unknown_and_costs_no_record() -> None:
    before, after = look(0, 0, 1), look(1, 2 * 10**12, 2 * 10**12)
    replicas = replica_rates(before, after)
    assert rates_of(replicas)[(1, KEY)].bytes_in == 2e15 > RATE_MAX
    records = list(byte_rate_records("c", before, after, replicas, broker_rates(before, after, replicas)))
    rows = [json.loads(value) for _, value in records]
    assert [(row["broker"], row["bytes_in_per_sec"], row["size_bytes"]) for row in rows] == [
        (1, None, 2 * 10**12), (1, None, None), (2, 0.0, None),
    ]  # fmt: skip


def test_a_clock_that_steps_back_makes_no_byte_rates() -> None:
    before, after = look(20_000, 1_000, 10), look(10_000, 2_000, 20)
    for later in (after, replace(after, time_ms=20_000)):
        rates = replica_rates(before, later)
        assert not list(byte_rate_records("c", before, later, rates, broker_rates(before, later, rates)))


def test_lag_is_never_negative_and_unknown_offsets_stay_null() -> None:
    behind, ahead = look(0, 1_000, 10, committed=4), look(0, 1_000, 10, committed=12)
    assert b'"lag_records":6' in next(iter(consumer_lag_records("c", behind)))[1]
    assert b'"lag_records":0' in next(iter(consumer_lag_records("c", ahead)))[1]
    unknown = replace(behind, partitions=partition_table({}))
    assert b'"lag_records":null' in next(iter(consumer_lag_records("c", unknown)))[1]


def test_records_carry_null_for_unknown() -> None:
    before, after = look(0, 1_000, 10), look(1_000, 50, 1, topic_id="other")
    replicas = replica_rates(before, after)
    after = replace(after, groups_left_out={1: 7})
    records = list(byte_rate_records("c", before, after, replicas, broker_rates(before, after, replicas)))
    assert len(records) == 1 + 2  # one replica, two brokers
    assert [json.loads(value).get("groups_left_out", "no field") for _, value in records] == ["no field", 7, None]
    assert records[0][0] == b"1"
    assert b'"bytes_in_per_sec":null' in records[0][1]


@given(
    st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6),
    st.integers(0, 10**6), st.integers(1, 60_000), st.sampled_from([1, 2]), st.sampled_from(["id", "other"]),
)  # fmt: skip
def test_a_rate_is_never_negative(
    size_before: int,
    size_after: int,
    end_before: int,
    end_after: int,
    start: int,
    interval_ms: int,
    leader: int,
    tid: str,
) -> None:
    before = look(0, size_before, end_before)
    after = look(interval_ms, size_after, end_after, start=min(start, end_after), leader=leader, topic_id=tid)
    for rates in rates_of(replica_rates(before, after)).values():
        assert all(value is None or value >= 0 for value in (rates.bytes_in, rates.bytes_out, rates.messages_in))
