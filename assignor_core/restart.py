"""Whether a broker may be restarted now: which partitions would be offline or refuse writes while it is away.

A partition is *offline* without the broker if no other replica is in sync. It *refuses writes* of producers with
acks=all if fewer than `min.insync.replicas` replicas stay in sync. It is *at the edge* if just as many stay: one more
broker that fails would stop its producers. A partition that is offline or refuses writes already is not the restart's
doing, but the broker may hold what brings it back, so the restart waits for that too. Eligible leader replicas
(KIP-966) change no verdict: Kafka keeps them for partitions below `min.insync.replicas`, which stop the restart anyway.

Groups and transactions have their coordinators where the partitions of two internal topics have their leaders: who
restarts that broker moves these coordinators. The module reads a description of the cluster and changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey

GROUPS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"


@dataclass(frozen=True, slots=True)
class RestartCheck:
    """What a restart of one broker would do; each list of partitions is sorted."""

    broker: int
    is_alive: bool
    """Whether the cluster shows the broker at all."""
    offline: tuple[PartitionKey, ...]
    """Partitions that would have no leader, or have none already."""
    single: tuple[PartitionKey, ...]
    """Partitions of `offline` that have no other replica at all: nothing but a second replica would help."""
    refusing: tuple[PartitionKey, ...]
    """Partitions that would have a leader and refuse writes with acks=all, or do so already."""
    at_edge: tuple[PartitionKey, ...]
    """Partitions that would have just as many replicas in sync as they need."""
    behind: tuple[PartitionKey, ...]
    """Partitions whose replica on the broker is not in sync: it has not caught up yet."""
    moving: tuple[PartitionKey, ...]
    """Reassignments under way that the broker takes part in, or that take away another replica in sync."""
    unknown: tuple[PartitionKey, ...]
    """Partitions of topics whose `min.insync.replicas` is not known; what they refuse can't be judged."""
    is_blind: bool
    """Whether the cluster refused to list reassignments, or hides topics: what is not seen can't be judged."""
    replicas: int
    leaders: int
    group_coordinators: int
    """Partitions of `__consumer_offsets` that the broker leads, as coordinator of the groups that hash to them."""
    transaction_coordinators: int
    """Partitions of `__transaction_state` that the broker leads, as coordinator of their transactional ids."""

    def stops(self, *, accepts_single: bool = False) -> tuple[str, ...]:
        """Why the broker should not be restarted now, a line each; empty where nothing speaks against it.

        `accepts_single` takes it for granted that partitions without another replica are offline meanwhile.
        """
        hard = set(self.offline) - (set(self.single) if accepts_single else set())
        blind = (
            ("not all is seen: the login may not list reassignments or describe all topics",) if self.is_blind else ()
        )
        rows = (
            (len(hard), "without a leader: no other replica is in sync"),
            (len(self.refusing), "refusing writes with acks=all: too few replicas stay in sync"),
            (len(self.behind), "behind on this broker: its replica has to catch up first"),
            (len(self.moving), "being reassigned: wait until that is over"),
            (len(self.unknown), "with min.insync.replicas unknown: the login may not read settings of the topic"),
        )
        lines = tuple(f"{count} partition{'' if count == 1 else 's'} {words}" for count, words in rows if count)
        return (*lines, *blind) if self.is_blind else lines


def restart_check(broker: int, cluster: LiveCluster, in_sync_min: Mapping[str, int]) -> RestartCheck:
    """What a restart of `broker` would do to the partitions of `cluster`; `in_sync_min` is `min.insync.replicas` by
    topic, as far as it is known.

    >>> from assignor_core.live import LivePartition
    >>> rows = {("t", 0): LivePartition((1, 2), 1, (1, 2)), ("t", 1): LivePartition((2, 1), 2, (2,))}
    >>> check = restart_check(2, LiveCluster("c", {1: None, 2: None}, rows), {"t": 1})
    >>> check.offline, check.at_edge, check.leaders
    ((('t', 1),), (('t', 0),), 1)
    """
    rows = [(key, row) for key, row in cluster.partitions.items() if broker in row.replicas]
    return _checked(broker, rows, cluster, in_sync_min)


def restart_checks(cluster: LiveCluster, in_sync_min: Mapping[str, int]) -> dict[int, RestartCheck]:
    """The check of each broker that is alive, by one walk over the replicas.

    >>> from assignor_core.live import LivePartition
    >>> rows = {("t", 0): LivePartition((1, 2), 1, (1, 2))}
    >>> checks = restart_checks(LiveCluster("c", {1: None, 2: None, 3: None}, rows), {"t": 2})
    >>> {broker: len(check.refusing) for broker, check in checks.items()}
    {1: 1, 2: 1, 3: 0}
    """
    rows: dict[int, list[tuple[PartitionKey, LivePartition]]] = defaultdict(list)
    for key, row in cluster.partitions.items():
        for broker in row.replicas:
            rows[broker].append((key, row))
    return {broker: _checked(broker, rows[broker], cluster, in_sync_min) for broker in sorted(cluster.broker_racks)}


def _checked(
    broker: int,
    rows: Iterable[tuple[PartitionKey, LivePartition]],
    cluster: LiveCluster,
    in_sync_min: Mapping[str, int],
) -> RestartCheck:
    """The check by the partitions of which the broker holds a replica."""
    offline, single, refusing, at_edge, behind, moving, unknown = [], [], [], [], [], [], []
    replicas, led = 0, Counter[str]()
    for key, row in sorted(rows):
        replicas += 1
        # A broker that has just died stays in sync in the metadata until it is fenced.
        left = len([one for one in row.isr if one != broker and one in cluster.broker_racks])
        # Kafka asks for no more replicas in sync than a partition has (KIP-966).
        needed = min(in_sync_min.get(key[0], 1), len(row.replicas))
        if key[0] not in in_sync_min:
            unknown.append(key)
        if left == 0 or row.leader == NO_LEADER:
            offline.append(key)
            # One that is offline though its broker is alive, as with a failed log dir, is a fault to look at first.
            is_expected = row.leader != NO_LEADER or broker not in cluster.broker_racks
            single += [key] if row.target_replicas == (broker,) and is_expected else []
        elif left < needed:
            refusing.append(key)
        elif left == needed:
            at_edge.append(key)
        if broker not in row.isr and broker in row.target_replicas:
            behind.append(key)
        if row.reassigning and (broker in row.adding_replicas or not set(row.isr).isdisjoint(row.removing_replicas)):
            moving.append(key)
        led[key[0]] += row.leader == broker
    # Kafka lists reassignments of topics, too, that the client may not describe.
    hidden = [
        key
        for key, listed in sorted(cluster.listed.items())
        if key not in cluster.partitions and broker in (*listed.adding_replicas, *listed.removing_replicas)
    ]
    return RestartCheck(
        broker=broker,
        is_alive=broker in cluster.broker_racks,
        offline=tuple(offline),
        single=tuple(single),
        refusing=tuple(refusing),
        at_edge=tuple(at_edge),
        behind=tuple(behind),
        moving=(*moving, *hidden),
        unknown=tuple(unknown),
        is_blind=cluster.reassignments_hidden or bool(cluster.hidden_topics),
        replicas=replicas,
        leaders=led.total(),
        group_coordinators=led[GROUPS_TOPIC],
        transaction_coordinators=led[TRANSACTIONS_TOPIC],
    )
