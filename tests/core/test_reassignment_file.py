"""The file of kafka-reassign-partitions: what it asks for, and what can't be meant."""

from typing import Any

import pytest

from assignor_core.errors import InputError
from assignor_core.reassignment_file import is_reassignment_file, replica_lists


def entry(**fields: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": [1, 2], **fields}


def test_the_lists_are_read_in_their_order() -> None:
    rows = [entry(partition=1, replicas=[3, 1]), entry(log_dirs=["any", "any"])]
    assert replica_lists({"version": 1, "partitions": rows}) == {("t", 1): (3, 1), ("t", 0): (1, 2)}


def test_a_plan_of_our_own_is_none() -> None:
    assert not is_reassignment_file({"partitions": [], "movements": []})
    assert not is_reassignment_file([])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"partitions": []}, "partitions: found no list with entries"),
        ({"partitions": {}}, "partitions: found no list with entries"),
        ({"version": 2, "partitions": [entry()]}, "version: found 2, allowed is 1"),
        ({"partitions": [3]}, r"partitions\[0\]: found no object"),
        ({"partitions": [entry(topic="")]}, r"partitions\[0\].topic: found ''"),
        ({"partitions": [entry(partition="0")]}, r"partitions\[0\].partition: found '0'"),
        ({"partitions": [entry(partition=True)]}, r"partitions\[0\].partition: found True"),
        ({"partitions": [entry(replicas=[])]}, "t-0: replicas: found "),
        ({"partitions": [entry(replicas=[1, "2"])]}, "t-0: replicas: found "),
        ({"partitions": [entry(replicas=[-1])]}, "t-0: replicas: found "),
        ({"partitions": [entry(replicas=[2, 2])]}, "t-0: replicas: found a broker twice"),
        ({"partitions": [entry(), entry()]}, "t-0: found twice"),
        ({"partitions": [entry(log_dirs=["/data/1", "any"])]}, "t-0: log_dirs: found "),
        ({"partitions": [entry(log_dirs="any")]}, "t-0: log_dirs: found "),
    ],
)
def test_what_can_not_be_meant_is_named(content: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        replica_lists(content)
