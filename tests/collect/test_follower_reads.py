"""What followers serve: seen in the counters of brokers, divided by racks of members, and the same in plans."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.live_plans.measured_loads import FollowerLoads
from assignor_core.live_plans.planning import LeaderLoads, Model, build_model
from assignor_core.load import broker_loads, cluster_arrays
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.resources import Resource
from streaming.collect.group_table import GroupTable, GroupView, Owner
from streaming.collect.rates import ReplicaRateTable, broker_rates, replica_rates
from streaming.collect.sample import BrokerCounters, ClusterSample
from streaming.contract.rates import BYTES_OUT, RATES
from tests.collect.by_row import PartitionView, partition_table, rates_of, size_table

RACKS = {1: "a", 2: "b", 3: "c"}
KEYS: list[PartitionKey] = [("t", 0), ("t", 1), ("t", 2)]
PLACED = {KEYS[0]: (1, 2, 3), KEYS[1]: (2, 3, 1), KEYS[2]: (3, 1, 2)}
"""The leader first."""
SECOND_MS = 1_000
RECORD_BYTES = 100
Members = Mapping[PartitionKey, tuple[str | None, int]]
"""By partition, the rack of the member that owns it and the records that it reads a second."""


def look(
    seconds: int,
    groups: Mapping[str, Members],
    sent: Mapping[int, Mapping[str, float]],
    placed: Mapping[PartitionKey, tuple[int, ...]] = PLACED,
) -> ClusterSample:
    """After so many seconds in which groups have read and brokers have `sent` so many bytes/s of each topic."""
    views = {}
    for name, members in groups.items():
        owners = {key: Owner(f"m-{rack}", "c", rack_id=rack) for key, (rack, _) in members.items()}
        committed = {key: rate * seconds for key, (_, rate) in members.items()}
        views[name] = GroupView("Stable", committed, owners)
    log_end = 1_000 * (seconds + 1)
    return ClusterSample(
        seconds * SECOND_MS,
        dict(RACKS),
        partition_table(
            {key: PartitionView("id", row[0], row, frozenset(), 0, log_end) for key, row in placed.items()}
        ),
        size_table({(broker, key): RECORD_BYTES * log_end for key, row in placed.items() for broker in row}),
        {},
        {
            broker: BrokerCounters(
                {rate.stem: 0.0 for rate in RATES} | {BYTES_OUT.stem: seconds * sum(by_topic.values())},
                {topic: seconds * rate for topic, rate in by_topic.items()},
            )
            for broker, by_topic in sent.items()
        },
        GroupTable(views),
    )


def rates_from(
    groups: Mapping[str, Members], sent: Mapping[int, Mapping[str, float]], *, followers_known: bool = False
) -> tuple[ReplicaRateTable, ClusterSample, ClusterSample]:
    before, after = look(0, groups, sent), look(1, groups, sent)
    return replica_rates(before, after, followers_known=followers_known), before, after


def served(rates: ReplicaRateTable) -> dict[tuple[int, int], float | None]:
    """(broker, partition): bytes/s."""
    return {(broker, key[1]): row.bytes_out for (broker, key), row in rates_of(rates).items()}


IN_RACK_B: Members = {KEYS[0]: ("b", 30), KEYS[1]: ("b", 10), KEYS[2]: ("b", 20)}
NOWHERE: Members = {KEYS[0]: (None, 5), KEYS[1]: (None, 5), KEYS[2]: (None, 5)}


def test_a_broker_that_sends_what_its_rack_reads_serves_as_a_follower() -> None:
    """Rack b reads all of its 60 records/s from broker 2, and those without a rack read from leaders."""
    rates, *_ = rates_from({"g": IN_RACK_B, "h": NOWHERE}, {1: {"t": 500}, 2: {"t": 6_500}, 3: {"t": 500}})
    assert rates.followers_serve
    assert served(rates) == {
        (1, 0): 500, (1, 1): 0, (1, 2): 0, (2, 0): 3_000, (2, 1): 1_500, (2, 2): 2_000,
        (3, 0): 0, (3, 1): 0, (3, 2): 500,
    }  # fmt: skip


def test_where_leaders_serve_all_members_racks_change_nothing() -> None:
    counted = {1: {"t": 3_500.0}, 2: {"t": 1_500.0}, 3: {"t": 2_500.0}}
    rates, *_ = rates_from({"g": IN_RACK_B, "h": NOWHERE}, counted, followers_known=True)
    assert not rates.followers_serve
    assert served(rates) == {
        (1, 0): 3_500, (1, 1): None, (1, 2): None, (2, 0): None, (2, 1): 1_500, (2, 2): None,
        (3, 0): None, (3, 1): None, (3, 2): 2_500,
    }  # fmt: skip


def test_a_broker_that_sends_what_it_does_not_lead_is_believed_without_racks() -> None:
    """Nobody commits, so what is written divides the counter of broker 2 among what it follows."""
    placed = dict.fromkeys(KEYS, (1, 2))
    before, after = (look(seconds, {}, {1: {"t": 60}, 2: {"t": 90}, 3: {}}, placed) for seconds in (0, 1))
    rates = replica_rates(before, after)
    assert served(rates) == {(1, 0): 20, (1, 1): 20, (1, 2): 20, (2, 0): 30, (2, 1): 30, (2, 2): 30}


def test_bytes_that_a_broker_sent_while_it_led_are_not_a_followers() -> None:
    counted = {1: {"t": 60.0}, 2: {"t": 90.0}, 3: {}}
    before = look(0, {}, counted, dict.fromkeys(KEYS, (1, 2)))
    after = look(1, {}, counted, dict.fromkeys(KEYS, (2, 1)))
    rates = replica_rates(before, after)
    assert not rates.followers_serve
    assert served(rates) == {(1, 0): None, (1, 1): None, (1, 2): None, (2, 0): 30, (2, 1): 30, (2, 2): 30}


@pytest.mark.parametrize("known", [False, True])
def test_where_both_would_send_the_same_the_looks_before_decide(known: bool) -> None:
    """Each rack reads as much as each leader has: counters can't show who serves whom."""
    members: Members = {KEYS[0]: ("b", 10), KEYS[1]: ("c", 10), KEYS[2]: ("a", 10)}
    counted = {broker: {"t": 1_000.0} for broker in RACKS}
    rates, *_ = rates_from({"g": members}, counted, followers_known=known)
    assert rates.followers_serve == known
    assert served(rates)[2, 0] == (1_000 if known else None)
    assert served(rates)[1, 0] == (0 if known else 1_000)


def test_a_topic_that_no_rack_reads_does_not_blur_what_another_shows() -> None:
    small: Members = {("s", 0): ("b", 1)}
    placed = {**PLACED, ("s", 0): (1, 2)}
    counted = {1: {"t": 9e9, "s": 0}, 2: {"t": 9e9, "s": 100}, 3: {"t": 9e9}}
    before, after = (look(seconds, {"g": small, "h": NOWHERE}, counted, placed) for seconds in (0, 1))
    rates = replica_rates(before, after)
    assert rates.followers_serve
    assert (rates_of(rates)[2, ("s", 0)].bytes_out, rates_of(rates)[1, ("s", 0)].bytes_out) == (100, 0)


def test_without_counters_followers_that_are_known_to_serve_are_estimated() -> None:
    rates, before, after = rates_from({"g": IN_RACK_B}, {}, followers_known=True)
    assert served(rates)[2, 0] == 3_000
    assert broker_rates(before, after, rates)[2][BYTES_OUT.name] == 6_000
    assert broker_rates(before, after, rates)[1][BYTES_OUT.name] == 0


RATE = st.integers(0, 50)


@given(
    st.dictionaries(
        st.sampled_from("ghi"),
        st.fixed_dictionaries({key: st.tuples(st.sampled_from(("a", "b", "c", "d", None)), RATE) for key in KEYS}),
    ),
    st.fixed_dictionaries({broker: st.fixed_dictionaries({"t": RATE.map(float)}) for broker in RACKS}),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_planner_and_trigger_have_the_same_bytes_out_of_each_broker(
    groups: Mapping[str, Members], sent: Mapping[int, Mapping[str, float]], known: bool
) -> None:
    """The trigger has each broker's own counter, the planner the sum over its replicas."""
    rates, before, after = rates_from(groups, sent, followers_known=known)
    totals = {broker: row[BYTES_OUT.name] for broker, row in broker_rates(before, after, rates).items()}
    arrays = cluster_arrays(model_of(rates, groups).cluster)
    out = broker_loads(arrays)[:, arrays.columns.of(Resource.BYTES_OUT)[0]]
    replication = 2 * RECORD_BYTES * 1_000.0
    assert dict(zip(arrays.broker_ids, (out - replication).tolist(), strict=True)) == pytest.approx(totals, abs=1e-6)


def model_of(rates: ReplicaRateTable, groups: Mapping[str, Members]) -> Model:
    """What control plans on after windows with these rates, in which groups have read."""
    leaders = {key: rates_of(rates)[row[0], key] for key, row in PLACED.items()}
    followers = {key: {b: rates_of(rates)[b, key].bytes_out for b in row[1:]} for key, row in PLACED.items()}
    read: dict[PartitionKey, dict[str | None, float]] = {key: {} for key in KEYS}
    for members in groups.values():
        for key, (rack, records) in members.items():
            read[key][rack] = read[key].get(rack, 0.0) + records
    measured = LeaderLoads(
        {key: (row.bytes_in, row.bytes_out) for key, row in leaders.items()},
        {},
        followers=FollowerLoads(
            {
                key: {broker: rate for broker, rate in row.items() if rate is not None}
                for key, row in followers.items()
                if any(row.values())
            },
            read,
        ),
    )
    live = LiveCluster("c", dict(RACKS), {key: LivePartition(row, row[0], row) for key, row in PLACED.items()})
    return build_model(
        live, {}, measured, (ClosedWindow(0, SECOND_MS, frozenset(), {}),), cluster_name="c", capacities={},
        disk_reserve=0.1, drained=frozenset(), disagreement_max=1.0, now_ms=0,
    )  # fmt: skip
