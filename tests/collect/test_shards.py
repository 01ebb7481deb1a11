"""Each broker and each group belongs to exactly one shard, whatever else there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming.collect.partition_table import ints
from streaming.collect.shards import WHOLE, Shard
from streaming.settings import CollectSettings

COUNTS = st.integers(1, 64)


@given(COUNTS, st.lists(st.integers(0, 2**31 - 1)), st.lists(st.text(min_size=1)))
def test_one_shard_takes_it(count: int, brokers: list[int], groups: list[str]) -> None:
    shards = [Shard(number, count) for number in range(1, count + 1)]
    assert all(sum(shard.takes_broker(broker) for shard in shards) == 1 for broker in brokers)
    assert all(sum(shard.takes_group(group) for shard in shards) == 1 for group in groups)
    for shard in shards:
        assert shard.takes_brokers(ints(brokers)).tolist() == [shard.takes_broker(broker) for broker in brokers]


def test_parts_are_of_like_size() -> None:
    names = [f"group-{number:06}" for number in range(10_000)]
    for number in (1, 2, 3):
        shard = Shard.of(f"{number}/3")
        assert 3_200 < sum(shard.takes_group(name) for name in names) < 3_470
        assert 33 <= sum(shard.takes_broker(broker) for broker in range(1, 101)) <= 34


def test_one_collector_takes_everything() -> None:
    assert CollectSettings().shard == str(WHOLE) == "1/1"
    assert WHOLE.is_whole
    assert WHOLE.takes_broker(7)
    assert WHOLE.takes_group("billing")


@pytest.mark.parametrize(
    "text", ["", "1", "0/2", "3/2", "1/65", "a/b", "1/2/3", "-1/2", "01/2", "1 / 2", "1/2\n", "\u0661/\u0662"]
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is no part like 1/2 or 2/2, of at most 64 parts"):
        CollectSettings(shard=text)
