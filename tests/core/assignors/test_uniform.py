"""The server-side assignor `uniform` in small cases; `tests/java/test_server_assignors.py` holds it against Kafka's."""

import random
from itertools import product

import pytest

from assignor_core.assignors import SERVER_ASSIGNORS, balance_score
from assignor_core.assignors.contract import GroupSpec, MemberSpec
from assignor_core.assignors.uniform import even_out
from tests.core.assignors.invariants import violations

Sizes = dict[str, list[int]]


def uniform(partitions: int, **owned: list[int]) -> Sizes:
    """Partition numbers of each member, who all read one topic."""
    members = {name: MemberSpec(["t"], [("t", number) for number in numbers]) for name, numbers in owned.items()}
    assigned = SERVER_ASSIGNORS["uniform"](GroupSpec({"t": partitions}, members)).assignment
    return {name: [number for _, number in listed] for name, listed in assigned.items()}


@pytest.mark.parametrize(
    ("partitions", "owned", "expected"),
    [
        (3, {"a": []}, {"a": [0, 1, 2]}),
        (4, {"a": [0, 1, 2, 3], "b": []}, {"a": [0, 1], "b": [2, 3]}),
        (3, {"a": [], "b": [0, 1]}, {"a": [2], "b": [0, 1]}),
        (3, {"a": [], "b": []}, {"a": [0], "b": [1, 2]}),
        (1, {"a": [], "b": [0]}, {"a": [], "b": [0]}),
        (2, {"a": [5], "b": []}, {"a": [0], "b": [1]}),
        (0, {"a": []}, {"a": []}),
    ],
    ids=["all", "half each", "one more stays where it is", "one more goes to the last", "fewer", "gone", "none"],
)
def test_uniform(partitions: int, owned: Sizes, expected: Sizes) -> None:
    assert uniform(partitions, **owned) == expected


def test_members_that_read_different_topics_get_as_many_as_that_allows() -> None:
    members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t", "u"]), "c": MemberSpec(["u"], [("u", 0), ("u", 1)])}
    assigned = SERVER_ASSIGNORS["uniform"](GroupSpec({"t": 4, "u": 2}, members)).assignment
    assert {name: len(listed) for name, listed in assigned.items()} == {"a": 2, "b": 2, "c": 2}
    assert list(assigned["c"]) == [("u", 0), ("u", 1)]


def test_a_group_without_members_gets_nothing() -> None:
    assert SERVER_ASSIGNORS["uniform"](GroupSpec({"t": 3}, {})).assignment == {}


def test_no_assignment_is_more_even() -> None:
    """Every assignment of small groups is tried."""
    for seed in range(50):
        draws = random.Random(seed)
        topics = {"t": draws.randint(1, 3), "u": draws.randint(1, 2), "v": draws.randint(0, 2)}
        read_by = {name: draws.sample("tuv", draws.randint(1, 3)) for name in "abcd"[: draws.randint(2, 4)]}
        readers = {topic: [name for name, read in read_by.items() if topic in read] for topic in topics}
        read = [(topic, number) for topic, count in topics.items() for number in range(count) if readers[topic]]
        owner = {tp: draws.choice([*readers[tp[0]], None]) for tp in read}
        members = {name: MemberSpec(read_by[name], [tp for tp in read if owner[tp] == name]) for name in read_by}
        spec = GroupSpec(topics, members)
        result = SERVER_ASSIGNORS["uniform"](spec)
        assert violations(spec, result) == []
        best = min(
            balance_score([owners.count(name) for name in members])
            for owners in product(*(readers[topic] for topic, _ in read))
        )
        assert balance_score([len(listed) for listed in result.assignment.values()]) == best


def test_a_chain_of_moves_is_no_longer_than_it_must_be_and_takes_back_what_one_had() -> None:
    members = {
        "a": MemberSpec(["t"], [("t", 1)]),
        "b": MemberSpec(["t", "u"], [("t", 0)]),
        "c": MemberSpec(["u"], [("u", 0)]),
    }
    evened = even_out(GroupSpec({"t": 2, "u": 1}, members), {"a": [], "b": [("t", 0), ("t", 1)], "c": [("u", 0)]})
    assert evened == {"a": [("t", 1)], "b": [("t", 0)], "c": [("u", 0)]}
