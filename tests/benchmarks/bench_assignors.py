"""Assignors side by side with Kafka's own Java classes, in one run: the assign call alone, least of some rounds.

`--slow` adds the rows on which Java takes minutes. "pairs" is what it costs besides to turn our whole result into
(topic, partition) pairs; owned partitions go in as such pairs. A second table is about load: Zipf weights on a group
that the sticky assignor has shared by count, means of ten seeds, ratios per fair share.
"""

import argparse
import random
import resource
import time
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from assignor_core.assignors import GroupAssignment, GroupSpec, MemberSpec, assign
from assignor_core.assignors.load_figures import LoadFigures, load_figures
from streaming.commands.assign import group_of
from tests.java.oracle import KafkaOracle

Line = dict[str, Any]
EAGER = ("range", "roundrobin")
STICKY = ("sticky", "cooperative-sticky")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", action="store_true", help="also where Java takes minutes")
    options = parser.parse_args()
    print(f"{'case':<28}{'strategy':<20}{'Java s':>10}{'ours s':>10}{'ratio':>8}{'pairs s':>10}")
    with KafkaOracle(heap="6g", java_options=()) as kafka:
        for case, line, slow in rows():
            if options.slow or not slow:
                measure(kafka, case, line, options.rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {peak:,.0f} MiB\n")
    print(f"{'partitions':>10}{'members':>9}{'exponent':>10}{'sticky':>9}{'by load':>9}{'bound':>8}{'moved/least':>13}")
    for partitions, members in ((200, 10), (1000, 20), (2000, 50)):
        for exponent in (0.5, 0.8, 1.0, 1.2):
            measure_load(partitions, members, exponent)


def rows() -> Iterator[tuple[str, Line, bool]]:
    """Cases: name, line, whether Java is slow on it."""
    for name, first_round in (("uniform", uniform()), ("non-equal", non_equal()), ("halves", halves())):
        for strategy in EAGER:
            yield f"{name}, first round", {**first_round, "strategy": strategy}, False
        for strategy in STICKY:
            line = {**first_round, "strategy": strategy}
            yield f"{name}, first round", line, False
            owning = next_round(line)
            yield f"{name}, one member lost", without_one(owning), False
            yield f"{name}, one joins", with_one_more(owning), name != "uniform"


def measure(kafka: KafkaOracle, case: str, line: Line, rounds: int) -> None:
    """One row of the table."""
    java_s = kafka.ask({**line, "quiet": True, "repeat": rounds})["elapsed_ms"] / 1000
    strategy, spec = group_of(line)
    ours_s, result = float("inf"), GroupAssignment({})
    for _ in range(rounds):
        started = time.perf_counter()
        result = assign(strategy, spec)
        ours_s = min(ours_s, time.perf_counter() - started)
    started = time.perf_counter()
    for partitions in result.assignment.values():
        list(partitions)
    pairs_s = time.perf_counter() - started
    print(f"{case:<28}{strategy:<20}{java_s:>10.3f}{ours_s:>10.3f}{ours_s / java_s:>8.3f}{pairs_s:>10.3f}", flush=True)


def measure_load(partitions: int, members: int, exponent: float) -> None:
    """One row of the second table."""
    results = [figures_by_load(partitions, members, exponent, seed) for seed in range(10)]
    before = fmean(figures.heaviest_before for figures in results)
    after = fmean(figures.heaviest_after for figures in results)
    bound = fmean(figures.bound for figures in results)
    moved = fmean(figures.moved_weight / figures.moved_weight_least for figures in results)
    print(f"{partitions:>10}{members:>9}{exponent:>10}{before:>9.2f}{after:>9.3f}{bound:>8.3f}{moved:>13.2f}")


def figures_by_load(partitions: int, members: int, exponent: float, seed: int) -> LoadFigures:
    weights = [1000.0 / rank**exponent for rank in range(1, partitions + 1)]
    random.Random(seed).shuffle(weights)
    names = [f"member-{number:03}" for number in range(members)]
    owned = assign("sticky", GroupSpec({"t": partitions}, {name: MemberSpec(["t"]) for name in names})).assignment
    joining = {name: MemberSpec(["t"], owned[name], 1) for name in names}
    spec = GroupSpec({"t": partitions}, joining, partition_weights={"t": weights})
    return load_figures(spec, assign("load-aware", spec))


def uniform() -> Line:
    """500 topics of 2,000 partitions, 2,000 members that read all."""
    topics = [f"topic-{number:03}" for number in range(500)]
    return group(dict.fromkeys(topics, 2000), {f"member-{number:04}": topics for number in range(2000)})


def non_equal() -> Line:
    """The same, but one member reads one topic only."""
    line = uniform()
    return {**line, "members": {**line["members"], "member-0000": {"topics": ["topic-000"]}}}


def halves() -> Line:
    """100 topics of 200 partitions, 500 members that read one half or the other."""
    topics = [f"topic-{number:03}" for number in range(100)]
    members = {f"member-{number:04}": topics[:50] if number % 2 else topics[50:] for number in range(500)}
    return group(dict.fromkeys(topics, 200), members)


def group(partitions_per_topic: Mapping[str, int], members: Mapping[str, list[str]]) -> Line:
    return {
        "partitions_per_topic": dict(partitions_per_topic),
        "members": {member_id: {"topics": topics} for member_id, topics in members.items()},
    }


def next_round(line: Line) -> Line:
    """Members own what the first round gave them."""
    strategy, spec = group_of(line)
    given = assign(strategy, spec).assignment
    members = {
        member_id: {**member, "owned_partitions": [list(tp) for tp in given[member_id]], "generation_id": 1}
        for member_id, member in line["members"].items()
    }
    return {**line, "members": members}


def without_one(line: Line) -> Line:
    members = dict(line["members"])
    del members[sorted(members)[len(members) // 2]]
    return {**line, "members": members}


def with_one_more(line: Line) -> Line:
    last = line["members"][max(line["members"])]
    return {**line, "members": {**line["members"], "member-new": {"topics": last["topics"]}}}


if __name__ == "__main__":
    main()
