"""The server-side assignor `uniform` in small cases; `tests/java/test_server_assignors.py` holds it against Kafka's."""

import pytest

from assignor_core.assignors import SERVER_ASSIGNORS
from assignor_core.assignors.contract import GroupSpec, MemberSpec

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
