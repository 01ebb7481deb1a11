"""Topics whose replicas and leaders should be spread over brokers, and topics that each broker should lead some of.

Even loads do not make one topic even: all its partitions may be on two brokers that carry little else. Of a topic that
should be spread, no broker should hold more replicas or leaders than an even division leaves it, rounded up. Where
racks are of unequal size, their brokers hold what the racks must. Each replica or leader beyond that has a price, so
the balance of loads goes first, and nothing is copied that costs more than it is worth.

A least number of leaders (of `__consumer_offsets`, whose leaders coordinate groups) is a dearer price, and no wall. A
broker can only lead what it holds, so hand-overs may have to pass through several brokers to reach the one that lacks
leaders; walls on the way would keep it from them.

Nothing moves here.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Flags, Indices
from assignor_core.planner.policy import NAMED_MAX, PlannerPolicy
from assignor_core.planner.rack_replicas import replicas_by_rack
from assignor_core.wording import counted, first_named, many


class SpreadTopics(NamedTuple):
    """G - 1 topics with a rule; row 0 of each array stands for all others, which have none."""

    names: tuple[str, ...]
    """G; the first one is empty."""
    topic_of: Indices
    """P: row of the topic."""
    replicas_most: Floats
    """G x B replicas that a broker should hold at most."""
    leaders_most: Floats
    """G x B leaders that a broker should have at most."""
    leaders_least: Floats
    """G x B leaders that a broker should have at least; 0 on brokers that may hold none."""


def spread_topics(arrays: ClusterArrays, policy: PlannerPolicy, may_lead: Flags) -> SpreadTopics:
    """The topics of `policy` that should be spread over the brokers that may lead them."""
    least = {topic: number for topics, number in reversed(policy.leaders_min) for topic in topics}
    wanted = policy.spread_topics | least.keys()
    names, brokers = ("", *sorted(wanted & {row.topic for row in arrays.partitions} if wanted else ())), len(may_lead)
    row_of = {name: row for row, name in enumerate(names)}
    topic_of = np.zeros(len(arrays.partitions), dtype=np.int64)
    if len(names) > 1:
        topic_of[:] = [row_of.get(row.topic, 0) for row in arrays.partitions]
    shape = (len(names), brokers)
    found = SpreadTopics(names, topic_of, np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape))
    if len(names) == 1:
        return found
    lowest, racks = _lowest(arrays, topic_of, len(names)), np.unique(arrays.racks[arrays.alive])
    partitions = np.bincount(topic_of, minlength=len(names))
    replicas = np.bincount(topic_of, (arrays.replicas != NO_BROKER).sum(axis=1), len(names))
    _, first = np.unique(topic_of, return_index=True)
    first_of = dict(zip(topic_of[first].tolist(), first.tolist(), strict=True))
    for row, name in enumerate(names[1:], start=1):
        able = may_lead if arrays.sets is None else may_lead & arrays.sets.members[arrays.sets.set_of[first_of[row]]]
        if not able.any():
            continue
        if name in policy.spread_topics:
            place = np.searchsorted(racks, arrays.racks[able])
            forced = np.ceil(lowest[row] / np.maximum(1, np.bincount(place, minlength=len(racks))))
            found.replicas_most[row] = np.ceil(replicas[row] / able.sum())
            found.replicas_most[row, able] = np.maximum(found.replicas_most[row, able], forced[place])
            found.leaders_most[row] = np.ceil(partitions[row] / able.sum())
        found.leaders_least[row, able] = least.get(name, 0)
    return found


def _lowest(arrays: ClusterArrays, topic_of: Indices, topics: int) -> Floats:
    """G x racks: the fewest replicas that each rack holds of a topic where its partitions are spread evenly."""
    spread = replicas_by_rack(arrays)
    kinds = np.zeros((topics, len(spread.factors)))
    np.add.at(kinds, (topic_of, spread.factor_of), 1.0)
    lowest: Floats = kinds @ spread.lowest
    return lowest


def counts_by_topic(topic_of: Indices, rows: Ints, topics: int, brokers: int) -> tuple[Indices, Indices]:
    """(G x B, G x B) replicas, and leaders, of each topic on each broker by `rows` (P x R).

    >>> counts_by_topic(np.array([1, 0]), np.array([[0, 1], [1, 0]]), 2, 2)[1].tolist()
    [[0, 0], [1, 0]]
    """
    replicas, leaders = np.zeros((topics, brokers), dtype=np.int64), np.zeros((topics, brokers), dtype=np.int64)
    some = np.flatnonzero(topic_of > 0)
    for slot in range(rows.shape[1]):
        held = some[rows[some, slot] != NO_BROKER]
        np.add.at(replicas, (topic_of[held], rows[held, slot]), 1)
    np.add.at(leaders, (topic_of[some], rows[some, 0]), 1)
    return replicas, leaders


def unspread(spread: SpreadTopics, rows: Ints, broker_ids: tuple[int, ...]) -> list[str]:
    """What `rows` (P x R) leave of topics that should be spread, and of brokers that lead too few of one: a line each.

    >>> state = state_of((1,), (1,), (1,), (2,))
    >>> policy, arrays = PlannerPolicy(spread_topics=frozenset({"t"})), state.problem.arrays
    >>> unspread(spread_topics(arrays, policy, arrays.alive), arrays.replicas, arrays.broker_ids)
    ['1 topic is not spread over brokers as it should be (t: broker 1 has 3 replicas, 2 would be even)']
    """
    if len(spread.names) == 1:
        return []
    replicas, leaders = counts_by_topic(spread.topic_of, rows, *spread.replicas_most.shape)
    lines = [*_too_many(spread, replicas, leaders, broker_ids)]
    partitions, least = np.bincount(spread.topic_of, minlength=len(spread.names)), spread.leaders_least
    for row in np.flatnonzero(partitions < least.sum(axis=1))[:NAMED_MAX]:
        leads = counted(int(least[row].max()), "leader", "leaders")
        brokers = f"{leads} on each of {counted(int((least[row] > 0).sum()), 'broker', 'brokers')}"
        lines.append(f"{spread.names[row]} has {many(int(partitions[row]), 'partition')}, too few for {brokers}")
    for row, broker in np.argwhere(leaders < least)[:NAMED_MAX]:
        leads = counted(int(leaders[row, broker]), "partition", "partitions")
        wanted = f"{least[row, broker]:.0f} should be the least"
        lines.append(f"broker {broker_ids[broker]} leads {leads} of {spread.names[row]}, {wanted}")
    return lines


def _too_many(spread: SpreadTopics, replicas: Indices, leaders: Indices, broker_ids: tuple[int, ...]) -> list[str]:
    words: dict[int, str] = {}
    for count, most, what in ((replicas, spread.replicas_most, "replica"), (leaders, spread.leaders_most, "leader")):
        over = count - most
        for row in np.flatnonzero((over > 0).any(axis=1)).tolist():
            broker = int(np.argmax(over[row]))
            has = f"broker {broker_ids[broker]} has {counted(int(count[row, broker]), what, f'{what}s')}"
            words.setdefault(row, f"{spread.names[row]}: {has}, {most[row, broker]:.0f} would be even")
    if not words:
        return []
    topics = counted(
        len(words),
        "topic is not spread over brokers as it should be",
        "topics are not spread over brokers as they should be",
    )
    return [f"{topics} ({first_named([words[row] for row in sorted(words)], NAMED_MAX)})"]
