"""Plans that take leadership off brokers and bring it back: the order of replicas changes, and nothing is copied.

Kafka elects the first replica of a list that is alive and in sync. A demoted broker therefore goes to the end of each
list, behind every broker that may lead; after that an election of the preferred replicas takes leadership off it. The
module knows orders and nothing of loads: whatever a broker led, the next replica of each list leads.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey, partition_name
from assignor_core.plan import Movement, Plan, Wave
from assignor_core.proposed_plan import Observed, ProposedPlan
from assignor_core.wording import counted, first_named

NAMED_MAX = 5


def propose_demotion(
    live: LiveCluster, brokers: frozenset[int], *, demoted: frozenset[int], cluster_name: str
) -> ProposedPlan:
    """The plan after which none of `brokers` leads a partition that another broker can lead.

    `demoted` are other brokers that must not lead either. Its problems name partitions that nobody else could lead now;
    its diagnosis names partitions with one replica, which stay.
    """
    movements: list[Movement] = []
    alone: list[PartitionKey] = []
    no_other: list[PartitionKey] = []
    moving: list[PartitionKey] = []
    last = brokers | demoted
    for key, row in _with_replicas_on(live, brokers):
        if len(row.replicas) == 1:
            alone.append(key)
        elif row.reassigning:
            moving.append(key)
        elif row.leader in last and not set(row.isr) - last:
            no_other.append(key)
        else:
            movements += _movement(key, row, at_the_end(row.replicas, last), brokers)
    problems = (
        *_named(moving, "is being reassigned", "are being reassigned"),
        *_named(no_other, "has no other replica in sync that may lead", "have no other replica in sync that may lead"),
    )
    stay = _named(alone, "has one replica and stays where it is", "have one replica and stay where they are")
    return _proposed(live, movements, cluster_name, problems=problems, diagnosis=stay)


def propose_restoration(
    live: LiveCluster,
    brokers: frozenset[int],
    orders: Mapping[PartitionKey, Sequence[int]],
    *,
    demoted: frozenset[int],
    cluster_name: str,
) -> ProposedPlan:
    """The plan that puts `brokers` back where they stood in `orders`, the lists of before by partition.

    Brokers that are still `demoted` stay at the end. A list that has lost or got other replicas since keeps those.
    """
    movements: list[Movement] = []
    moving: list[PartitionKey] = []
    for key, row in _with_replicas_on(live, brokers):
        if key not in orders:
            continue
        if row.reassigning:
            moving.append(key)
            continue
        movements += _movement(key, row, at_the_end(restored(row.replicas, orders[key], brokers), demoted), brokers)
    return _proposed(
        live, movements, cluster_name, problems=_named(moving, "is being reassigned", "are being reassigned")
    )


def at_the_end(replicas: Sequence[int], brokers: Collection[int]) -> tuple[int, ...]:
    """The list with these brokers behind the others, each part in its order.

    >>> at_the_end((3, 1, 4, 2), {3, 4})
    (1, 2, 3, 4)
    """
    return tuple(sorted(replicas, key=lambda broker: broker in brokers))


def restored(replicas: Sequence[int], before: Sequence[int], brokers: Collection[int]) -> tuple[int, ...]:
    """The list with these brokers in the places that they had before, as far as it still names them.

    >>> restored((1, 2, 3), (3, 1, 2), {3}), restored((1, 2), (3, 1, 2), {3}), restored((7, 1, 3), (1, 3, 2), {3})
    ((3, 1, 2), (1, 2), (7, 3, 1))
    """
    back = [broker for broker in before if broker in brokers and broker in replicas]
    made = [broker for broker in replicas if broker not in back]
    for broker in back:
        made.insert(list(before).index(broker), broker)
    return tuple(made)


def _with_replicas_on(live: LiveCluster, brokers: frozenset[int]) -> Iterable[tuple[PartitionKey, LivePartition]]:
    return ((key, row) for key, row in sorted(live.partitions.items()) if brokers.intersection(row.replicas))


def _movement(
    key: PartitionKey, row: LivePartition, new: tuple[int, ...], brokers: frozenset[int]
) -> Iterable[Movement]:
    """To this order; also where only an election is missing."""
    preferred_leads = row.leader == new[0] or not brokers.intersection((row.leader, new[0]))
    if new == row.replicas and preferred_leads:
        return []
    leads = "no broker leads it now" if row.leader == NO_LEADER else f"broker {row.leader} leads it"
    reason = f"{leads}, broker {new[0]} is to lead it"
    if row.leader == new[0]:
        reason = f"broker {new[0]} leads it, and the others take over in another order"
    return [Movement(*key, row.replicas, new, 0.0, reason)]


def _named(keys: Sequence[PartitionKey], one: str, more: str) -> tuple[str, ...]:
    if not keys:
        return ()
    what = counted(len(keys), f"partition {one}", f"partitions {more}")
    return (f"{what}: {first_named(keys, NAMED_MAX, partition_name)}",)


def _proposed(
    live: LiveCluster,
    movements: Sequence[Movement],
    cluster_name: str,
    *,
    problems: tuple[str, ...],
    diagnosis: tuple[str, ...] = (),
) -> ProposedPlan:
    waves = (Wave(len(movements), 0.0, 0.0),) if movements else ()
    plan = Plan(cluster_name, tuple(movements), problems=problems, diagnosis=diagnosis, waves=waves)
    return ProposedPlan(plan, Observed.of(plan, live))
