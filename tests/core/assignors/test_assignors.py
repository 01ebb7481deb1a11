"""Every strategy on many groups: valid, safe, balanced, repeatable; and the command's answers to bad lines."""

import json
import math
import random
import re
import struct
from dataclasses import replace
from typing import Any

import pytest

from assignor_core.assignors import STRATEGIES, GroupSpec, MemberSpec, assign, balance_score
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import settle_claims
from assignor_core.assignors.wire import (
    Assignment,
    Subscription,
    cooperative_generation,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from assignor_core.errors import InputError, MalformedBytes
from streaming.commands.assign import assignment_answer, explained_answer, group_of
from streaming.commands.json_lines import answer_line
from tests.core.assignors.groups import after, disputed, mixed_line, uniform_line
from tests.core.assignors.invariants import unbalanced, violations
from tests.core.assignors.recorded_rounds import ROUNDS, Round
from tests.costs import grows_at_most


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 60))])
def test_valid_and_safe_over_three_rebalances(strategy: str, seed: int) -> None:
    draws = random.Random(seed)
    line = {"strategy": strategy, **draws.choice([uniform_line, mixed_line])(draws, racks=draws.random() < 0.3)}
    for generation_id in range(1, 4):
        _, spec = group_of(line)
        result = assign(strategy, spec)
        assert violations(spec, result, cooperative=strategy.startswith("cooperative")) == []
        assert assign(strategy, spec) == result
        if strategy == "sticky":
            assert unbalanced(spec, result.assignment) == []
        line = disputed(after(line, dict(result.assignment), draws, generation_id=generation_id), draws)


@pytest.mark.parametrize("seed", range(10))
def test_cooperative_rebalances_reach_the_balance_of_the_eager_one(seed: int) -> None:
    """Nobody leaves: a second rebalance hands out what the first withheld."""
    draws = random.Random(seed)
    line = {"strategy": "cooperative-sticky", **uniform_line(draws)}
    _, spec = group_of(line)
    line = after(line, dict(assign("cooperative-sticky", spec).assignment), draws)
    for generation_id in (2, 3):
        _, spec = group_of(line)
        result = assign("cooperative-sticky", spec)
        members = {
            name: {
                **member,
                "owned_partitions": [list(tp) for tp in result.assignment[name]],
                "generation_id": generation_id,
            }
            for name, member in line["members"].items()
        }
        line = {**line, "members": members}
    assert list(result.transferring) == []
    assert max(map(len, result.assignment.values())) - min(map(len, result.assignment.values())) <= 1


def test_an_even_group_with_racks_stays_as_it_is() -> None:
    """t-3 is in nobody's rack: it is given up and dealt anew at each rebalance, and has to go home to c1.

    t-2, of c0, went to c1 in its place, as if c1 had owned what it was dealt a moment before.
    """
    members = {
        "c0": MemberSpec(["t", "u"], [("t", 2), ("u", 0), ("u", 2)], 2, rack_id="r2"),
        "c1": MemberSpec(["t"], [("t", 0), ("t", 1), ("t", 3)], 2, rack_id="r2"),
        "z": MemberSpec(["u", "v"], [("u", 1), ("v", 0), ("v", 1)], 2, rack_id="r2"),
    }
    racks = {"t": [["r2"], ["r2"], ["r2"], ["r1"]], "u": [["r1"], ["r2"], ["r2"]], "v": [["r2"], ["r1"]]}
    for strategy in ("sticky", "cooperative-sticky"):
        result = assign(strategy, GroupSpec({"t": 4, "u": 3, "v": 2}, members, partition_racks=racks))
        assert list(result.transferring) == []
        assert {name: sorted(own) for name, own in result.assignment.items()} == {
            name: list(member.owned_partitions) for name, member in members.items()
        }


@pytest.mark.parametrize("row", ROUNDS, ids=lambda row: row.name)
def test_rounds_that_must_be_kafkas_stay_as_they_are(row: Round) -> None:
    """Whoever leads the next round must find nothing to take back."""
    result = assignment_answer(row.line)
    assert {name: sorted(own) for name, own in result["assignment"].items()} == row.assignment


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_idle_groups(strategy: str) -> None:
    groups: tuple[dict[str, dict[str, list[str]]], ...] = (
        {}, {"a": {"topics": []}}, {"a": {"topics": ["ghost"]}, "b": {"topics": []}},
    )  # fmt: skip
    for members in groups:
        line = {"strategy": strategy, "partitions_per_topic": {"t": 3, "empty": 0}, "members": members}
        assert assignment_answer(line)["assignment"] == {name: [] for name in members}


def test_java_defects_are_not_copied() -> None:
    members = {"a": {"topics": []}, "b": {"topics": ["t"], "owned_partitions": [["t", 99], ["gone", 0]]},
               "c": {"topics": ["t"], "owned_partitions": [["u", 0]]}, "d": {"topics": ["u", "u"]}}  # fmt: skip
    for strategy in STRATEGIES:
        line = {"strategy": strategy, "partitions_per_topic": {"t": 4, "u": 1}, "members": members}
        _, spec = group_of(line)
        assert violations(spec, assign(strategy, spec), cooperative="cooperative" in strategy) == []


def test_a_sole_claim_below_the_newest_generation_is_preferred_too() -> None:
    members = {
        "a": MemberSpec(["t"], [("t", 1)], 4),
        "b": MemberSpec(["t", "u"], [("t", 0), ("u", 0)], 5),
        "c": MemberSpec(["u"], [("u", 1)], 5),
    }
    group = IndexedGroup.of(GroupSpec({"t": 2, "u": 2}, members))
    assert settle_claims(group).earlier_holder.tolist() == [UNASSIGNED, 0, UNASSIGNED, UNASSIGNED]


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "cooperative-load-aware"])
@pytest.mark.parametrize("generation_id", [4, 5, 6])
def test_a_claim_on_a_topic_that_is_read_no_longer_withholds_nothing(strategy: str, generation_id: int) -> None:
    """Nobody would revoke it, so nobody would join again and get it; neither does it contest the claim of a reader."""
    members = {
        "a": MemberSpec(["u"], [("t", 0), ("t", 1), ("u", 0)], generation_id),
        "b": MemberSpec(["t"], [("t", 1)], 5),
    }
    result = assign(strategy, GroupSpec({"t": 2, "u": 1}, members, partition_weights={"t": [1.0, 2.0], "u": [1.0]}))
    assert list(result.transferring) == []
    assert (list(result.assignment["a"]), list(result.assignment["b"])) == ([("u", 0)], [("t", 0), ("t", 1)])


def test_a_tie_is_nobodys_and_the_higher_generation_wins() -> None:
    def claims(one: int, other: int) -> list[list[object]]:
        members = {name: {"topics": ["t"], "owned_partitions": [["t", 0]], "generation_id": generation}
                   for name, generation in (("a", one), ("b", other))}  # fmt: skip
        line = {"strategy": "cooperative-sticky", "partitions_per_topic": {"t": 2}, "members": members}
        answer = json.loads(json.dumps(assignment_answer(line)))
        return [answer["assignment"]["a"], answer["assignment"]["b"], answer["transferring"]]

    assert claims(4, 4) == [[], [["t", 1]], [["t", 0]]]
    assert claims(3, 4) == [[["t", 1]], [["t", 0]], []]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_generations_that_no_group_has_are_ordered_as_far_as_kafka_has_them(strategy: str) -> None:
    members = {"a": MemberSpec(["t"], [("t", 0)], -(10**40)), "b": MemberSpec(["t"], [("t", 0), ("t", 1)], 10**40)}
    result = assign(strategy, GroupSpec({"t": 2}, members))
    assert sorted(tp for own in [*result.assignment.values(), result.transferring] for tp in own) == [
        ("t", 0),
        ("t", 1),
    ]


def test_balance_score_counts_pairs() -> None:
    sizes = [random.Random(n).randint(0, 9) for n in range(9)]
    assert balance_score(sizes) == sum(abs(a - b) for i, a in enumerate(sizes) for b in sizes[:i])


def test_explain_names_what_moved() -> None:
    members = {"a": {"topics": ["t"], "owned_partitions": [["t", 0], ["t", 1]]}, "b": {"topics": ["t"]}}
    answer = explained_answer({"strategy": "sticky", "partitions_per_topic": {"t": 2}, "members": members})
    assert [(move["partition"], move["old_members"], move["new_member"]) for move in answer["moves"]] == [
        (("t", 1), ["a"], "b")
    ]


def reasons(strategy: str, members: dict[str, Any], partitions: int, **rest: Any) -> dict[int, str]:
    """Why each partition of the topic t moves."""
    line = {"strategy": strategy, "partitions_per_topic": {"t": partitions}, "members": members, **rest}
    return {move["partition"][1]: move["reason"] for move in explained_answer(line)["moves"]}


def owning(*partitions: int, generation: int = 4, **rest: Any) -> dict[str, Any]:
    return {"topics": ["t"], "owned_partitions": [["t", n] for n in partitions], "generation_id": generation, **rest}


def test_explain_says_that_strategies_by_position_know_no_owners() -> None:
    """Each member had exactly its share."""
    by_turn = reasons("roundrobin", {"a": owning(2), "b": owning(0), "c": owning(1)}, 3)
    assert by_turn == {
        n: f"roundrobin does not know owners: by its position the partition falls to {member}"
        for n, member in enumerate("abc")
    }
    by_range = reasons("range", {"m-2": owning(0, 1), "m-1": owning(2, 3)}, 4)
    assert by_range == {
        n: f"range does not know owners: by its position the partition falls to {member}"
        for n, member in enumerate(["m-1", "m-1", "m-2", "m-2"])
    }


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_explain_names_the_rack(strategy: str) -> None:
    members = {"a": owning(0, 1, rack_id="r1"), "b": owning(2, 3, rack_id="r2")}
    racks = {"t": [["r2"], ["r1"], ["r1"], ["r2"]]}
    of_racks = reasons(strategy, members, 4, partition_racks=racks)
    withheld = "withheld until its owner has revoked it: " if strategy == "cooperative-sticky" else ""
    assert of_racks == {
        0: f"{withheld}the rack of b has a replica, and that of its owner has none",
        2: f"{withheld}the rack of a has a replica, and that of its owner has none",
    }
    moved = reasons("range", {"a": owning(0, rack_id="r2"), "b": owning(1, rack_id="r1")}, 2,
                    partition_racks={"t": [["r1"], ["r2"]]})  # fmt: skip
    assert moved == {
        0: "range does not know owners: the rack of b has a replica",
        1: "range does not know owners: the rack of a has a replica",
    }


def test_explain_names_shares_claims_and_load() -> None:
    assert reasons("sticky", {"a": owning(0, 1, 2, 3), "b": owning()}, 4) == {
        2: "its owner had 4 partitions, more than its share of 2",
        3: "its owner had 4 partitions, more than its share of 2",
    }
    assert reasons("cooperative-sticky", {"a": owning(0, 1), "b": owning()}, 2) == {
        1: "withheld until its owner has revoked it: its owner had 2 partitions, more than its share of 1"
    }
    assert reasons("sticky", {"a": owning(0, generation=3), "b": owning(0)}, 1) == {
        0: "several members claim it: the claim of b, of the highest generation, counts"
    }
    assert reasons("sticky", {"a": owning(0), "b": owning(0)}, 1) == {
        0: "several members claim it at the same generation: no claim counts"
    }
    assert reasons("sticky", {"a": owning(0, 9), "b": {**owning(1), "topics": []}}, 2) == {
        1: "its owner no longer reads the topic",
        9: "the partition does not exist",
    }
    weights = {"t": [9.0, 1.0, 1.0]}
    assert set(reasons("load-aware", {"a": owning(0, 1), "b": owning(2)}, 3, partition_weights=weights).values()) == {
        "by load: the load of members becomes even for their capacity"
    }


def test_explain_names_racks_only_where_racks_decide() -> None:
    racked: dict[str, Any] = {"partition_racks": {"t": [["r1"], ["r2"], ["r2"]]}}
    members = {"a": owning(1, 2, rack_id="r1"), "b": owning(0, rack_id="r2")}
    assert reasons("sticky", members, 3, **racked) == {
        0: "the rack of a has a replica, and that of its owner has none",
        1: "the rack of b has a replica, and that of its owner has none",
        2: "the rack of b has a replica, and that of its owner has none",
    }
    weights = {"t": [5, 5, 5]}
    assert reasons("load-aware", members, 3, partition_weights=weights, **racked) == reasons(
        "sticky", members, 3, **racked
    )
    joined = {"a": owning(0, 1, 2, 3, rack_id="r1"), "b": owning(rack_id="r2")}
    share = "its owner had 4 partitions, more than its share of 2"
    assert reasons("sticky", joined, 4, partition_racks={"t": [["r2"], ["r1"], ["r1"], ["r2"]]}) == {
        0: f"{share}; the rack of b has a replica, and that of its owner has none",
        3: share,
    }
    by_range = reasons("range", {"a": owning(2, rack_id="r1"), "b": owning(0, rack_id="r2")}, 3, **racked)
    assert by_range == {
        0: "range does not know owners: by its position the partition falls to a",
        2: "range does not know owners: by its position the partition falls to b",
    }
    members = {"a": owning(rack_id="r1"), "b": owning(3, rack_id="r2")}
    filled_up = reasons("range", members, 4, partition_racks={"t": [["r1"], ["r2"], ["r2"], ["r2"]]})
    assert filled_up == {
        3: "range does not know owners: by its position and the racks of others the partition falls to a"
    }


def test_explain_tells_which_claims_count() -> None:
    twice = {"a": owning(0, 0), "b": owning(1)}
    assert reasons("range", twice, 2) == {}
    assert reasons("cooperative-sticky", twice, 2) == {
        0: "withheld until its owner has revoked it: a lists it 2 times: no claim counts"
    }
    assert reasons("cooperative-sticky", {"a": owning(0), "b": owning(0)}, 1) == {
        0: "withheld until all that claim it have revoked it: "
        "several members claim it at the same generation: no claim counts"
    }
    assert reasons("cooperative-sticky", {"a": owning(0, 1), "b": owning(1, generation=3)}, 2) == {
        1: "withheld until its owner has revoked it: several members claim it: the claim of a, of the highest "
        "generation, counts, and its owner had 2 partitions, more than its share of 1"
    }
    other = {"a": owning(0), "b": {**owning(0, generation=5), "topics": []}}
    assert reasons("sticky", other, 1) == {
        0: "several members claim it: the claim of a, who alone reads the topic, counts"
    }
    assert reasons("sticky", {"a": owning(0), "b": owning(0, 1, 2, generation=5), "c": owning(3)}, 4) == {
        0: "several members claim it: the claim of b, of the highest generation, counts",
        2: "its owner had 3 partitions, more than its share of 2",
    }


def test_explain_blames_no_generation_for_an_exchange() -> None:
    """The claim of c counts, though it is older: it is withheld for it. Only c reads the other topic."""
    line = {
        "strategy": "cooperative-sticky", "partitions_per_topic": {"t": 2, "u": 1},
        "members": {"a": owning(0), "b": owning(), "c": {**owning(1, generation=3), "topics": ["t", "u"]}},
    }  # fmt: skip
    (move,) = explained_answer(line)["moves"]
    assert move["reason"] == (
        "withheld until its owner has revoked it: exchanged for another partition: its owner had 1 partition and gets 1"
    )


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_explained_shares_and_racks_are_as_it_says(strategy: str) -> None:
    """Whatever a group looks like: a reason that names figures names those of the group."""
    for seed in range(20):
        draw = random.Random(seed)
        racks = [f"r{draw.randrange(3)}" for _ in range(8)] if seed % 2 else []
        names = [f"m{n}" for n in range(draw.randrange(1, 5))]
        owner = {n: draw.choice(names) for n in range(8) if draw.random() < 0.8}
        members = {
            name: owning(*(n for n, other in owner.items() if other == name), generation=draw.choice([3, 4, 4]),
                         rack_id=f"r{draw.randrange(3)}")
            for name in names
        }  # fmt: skip
        line = {"strategy": strategy, "partitions_per_topic": {"t": 8}, "members": members,
                "partition_racks": {"t": [[rack] for rack in racks]} if racks else {}}  # fmt: skip
        answer = explained_answer(line)
        gets = {name: len(own) for name, own in answer["assignment"].items()}
        for move in answer["moves"]:
            (before,), reason, (_, number) = move["old_members"], move["reason"], move["partition"]
            if found := re.search(r"had (\d+) partitions, more than its share of (\d+)", reason):
                had, share = map(int, found.groups())
                assert had == len(members[before]["owned_partitions"]) > share >= gets[before]
            if found := re.search(r"the rack of (\w+) has a replica", reason):
                assert members[found.group(1)]["rack_id"] == racks[number]
                assert move["new_member"] in (None, found.group(1))
            assert ("does not know owners" in reason) == (strategy in ("range", "roundrobin"))


def test_explain_gives_figures_of_load() -> None:
    line = {
        "strategy": "load-aware",
        "partitions_per_topic": {"t": 3},
        "members": {"a": {"topics": ["t"], "owned_partitions": [["t", 0], ["t", 1]]}, "b": {"topics": ["t"]}},
        "partition_weights": {"t": [4, None, 2]},
    }
    load = explained_answer(line)["load"]
    assert load["heaviest_before"] == pytest.approx(7 / 4.5)
    assert load["heaviest_after"] == pytest.approx(5 / 4.5)
    assert load["moved_weight"] == 3.0
    assert explained_answer({**line, "members": {}})["moves"] == []
    assert "load" not in explained_answer({**line, "strategy": "sticky"})


@pytest.mark.parametrize("members", [{}, {"a": {"topics": []}}, {"a": {"topics": ["gone"]}}])
def test_explain_has_figures_of_a_group_that_reads_nothing(members: dict[str, object]) -> None:
    answer = explained_answer({"strategy": "load-aware", "partitions_per_topic": {"t": 3}, "members": members})
    assert set(answer["load"].values()) == {0.0}


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("number", [-(10**40), -1, 2, 2**63 - 1, 2**63, 10**40])
def test_claims_on_what_can_not_exist_are_dropped(strategy: str, number: int) -> None:
    members = {"a": MemberSpec(["t"], [("t", number), ("t", 1)], 1), "b": MemberSpec(["t"], [("t", 0)], 1)}
    result = assign(strategy, GroupSpec({"t": 2}, members))
    assert sorted(tp for owned in result.assignment.values() for tp in owned) == [("t", 0), ("t", 1)]


@pytest.mark.long
@pytest.mark.parametrize("subscriptions", ["equal", "different"])
def test_racks_cost_a_partition_the_same_however_many_read_it(subscriptions: str) -> None:
    """All members were looked through for each partition: 30 to 40 times as slow with 4,000 as with 100."""
    racks = {topic: [[f"r{1 + n % 2}"] for n in range(5000)] for topic in "tu"}

    def group(count: int) -> GroupSpec:
        members = {f"c{n}": MemberSpec(["t", "u"], rack_id="r2" if n % 50 else "r1") for n in range(count)}
        if subscriptions == "different":
            members["c0"] = MemberSpec(["t"], rack_id="r1")
        return GroupSpec({"t": 5000, "u": 5000}, members, partition_racks=racks)

    assert grows_at_most(8, lambda spec: assign("sticky", spec), group(100), group(4000))


@pytest.mark.parametrize(
    ("change", "type_"),
    [
        ({"strategy": "x"}, "UnknownStrategy"),
        ({"strategy": 3}, "UnknownStrategy"),
        ({"partitions_per_topic": {"t": -1}}, "InvalidGroup"),
        ({"partitions_per_topic": {"t": 2_000_000_000}}, "InvalidGroup"),
        ({"partitions_per_topic": {"t": 10**40}}, "InvalidField"),
        ({"partitions_per_topic": {"t": True}}, "InvalidField"),
        ({"partitions_per_topic": []}, "InvalidField"),
        ({"members": {"a": []}}, "InvalidField"),
        ({"members": {"a": {}}}, "InvalidField"),
        ({"members": {"a": {"topics": "t"}}}, "InvalidField"),
        ({"members": {"a": {"topics": ["t"], "owned_partitions": [["t"]]}}}, "InvalidField"),
        ({"members": {"a": {"topics": ["t"], "generation_id": "4"}}}, "InvalidField"),
        ({"members": {"a": {"topics": ["t"], "capacity": 0}}}, "InvalidGroup"),
        ({"members": {"a": {"topics": ["t"], "capacity": 1e-300}}}, "InvalidGroup"),
        ({"members": {"a": {"topics": ["t"], "capacity": 1e300}}}, "InvalidGroup"),
        ({"partition_weights": {"t": [1e200]}}, "InvalidGroup"),
        ({"partition_weights": {"t": [-1]}}, "InvalidGroup"),
        ({"partition_weights": {"t": [math.nan]}}, "InvalidField"),
        ({"partition_weights": {"t": [math.inf]}}, "InvalidField"),
        ({"partition_racks": {"t": "r"}}, "InvalidField"),
        ({"partition_racks": []}, "InvalidField"),
        ({"partition_weights": 0}, "InvalidField"),
    ],
)
def test_bad_lines(change: dict[str, object], type_: str) -> None:
    line = {"strategy": "sticky", "partitions_per_topic": {"t": 3}, "members": {"a": {"topics": ["t"]}}, **change}
    error = answer_line(json.dumps(line).encode(), assignment_answer)["error"]
    assert error["type"] == type_
    assert len(error["message"]) < 300


def test_a_member_that_a_line_names_twice_is_refused() -> None:
    line = b'{"strategy":"range","partitions_per_topic":{"t":2},"members":{"a":{"topics":["t"]},"a":{"topics":[]}}}'
    error = answer_line(line, assignment_answer)["error"]
    assert error == {"type": "InvalidJson", "message": '"a" occurs twice in one object, each key must be unique'}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weight", [1e100, 1.0, 1e-99, 1e-250])
def test_the_farthest_weights_and_capacities_are_shared_without_an_overflow(weight: float) -> None:
    members = {
        name: {"topics": ["t"], "capacity": capacity, "owned_partitions": owned}
        for name, capacity, owned in (("a", 1e-50, [["t", n] for n in range(4)]), ("b", 1e50, []), ("c", 1e50, []))
    }
    line = {"strategy": "load-aware", "partitions_per_topic": {"t": 6}, "members": members,
            "partition_weights": {"t": [n * weight for n in (0.1, 0.3, 0.1, 0.3, 1, 0.9)]}}  # fmt: skip
    answer = explained_answer(line)
    assert answer["assignment"]["a"] == []
    assert all(map(math.isfinite, answer["load"].values()))


def test_bytes_round_trip() -> None:
    subscription = Subscription(("a", "b"), b"x", (("a", 1), ("b", 0)), 7, "r")
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert decode_subscription(encode_subscription(subscription, 1)) == Subscription(
        ("a", "b"), b"x", subscription.owned_partitions
    )
    # Version, topics, a with 1 and 2, b with 0, user data.
    assignment = "0003 00000002 000161 00000002 00000001 00000002 000162 00000001 00000000"
    for user_data, written in ((b"", "00000000"), (b"x", "00000001 78"), (None, "ffffffff")):
        owned = Assignment((("a", 1), ("a", 2), ("b", 0)), user_data)
        assert encode_assignment(owned) == bytes.fromhex(f"{assignment} {written}")


def test_each_topic_is_written_once() -> None:
    """Members get their partitions in the order of the strategy, in which topics take turns."""
    turns = tuple((topic, number) for number in range(9) for topic in ("a", "b"))
    assert len(encode_assignment(Assignment(turns))) == len(encode_assignment(Assignment(tuple(sorted(turns)))))
    assert len(encode_sticky_user_data(turns)) == len(encode_sticky_user_data(sorted(turns)))
    assert sorted(decode_sticky_user_data(encode_sticky_user_data(turns, 3))[0]) == sorted(turns)


def test_a_newer_version_is_written_as_the_newest_and_an_empty_rack_is_none() -> None:
    subscription = Subscription(("a",), None, (("a", 1),), 7, "")
    assert encode_subscription(subscription, 9) == encode_subscription(subscription, 3)
    assert encode_assignment(Assignment(()), 9) == encode_assignment(Assignment(()), 3)
    assert decode_subscription(encode_subscription(subscription)).rack_id is None
    with pytest.raises(InputError, match="version is -1"):
        encode_subscription(subscription, -1)


def test_user_data_falls_back_as_kafka_does() -> None:
    owned = (("a", 1), ("a", 4))
    assert decode_sticky_user_data(encode_sticky_user_data(owned, 5) + b"more") == (owned, 5)
    assert decode_sticky_user_data(encode_sticky_user_data(owned)) == (owned, -1)
    assert decode_sticky_user_data(b"\x7f\xff\xff\xff") == ((), -1)
    assert decode_sticky_user_data(None) == ((), -1)
    assert cooperative_generation(Subscription((), struct.pack(">i", 6))) == 6
    assert cooperative_generation(Subscription((), b"\x00", generation_id=-3)) == -1


def test_every_cut_of_a_subscription_is_read_without_its_last_fields_or_a_clear_error() -> None:
    given = Subscription(("a",), b"x", (("a", 1),), 7, "r")
    whole = encode_subscription(given)
    after_topics = 2 + 4 + 3
    read = {
        after_topics: Subscription(("a",)),
        after_topics + 5: Subscription(("a",), b"x"),
        after_topics + 5 + 15: Subscription(("a",), b"x", (("a", 1),)),
        after_topics + 5 + 15 + 4: replace(given, rack_id=None),
        len(whole): given,
    }
    for end in range(len(whole) + 1):
        if end in read:
            assert decode_subscription(whole[:end]) == read[end]
        else:
            with pytest.raises(MalformedBytes, match="subscription"):
                decode_subscription(whole[:end])
