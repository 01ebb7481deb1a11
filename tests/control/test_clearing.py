"""The removal of a throttle of either kind: tries that Kafka refuses are counted, and the count begins anew."""

import pytest

from streaming.control import throttle
from streaming.control.throttle import Clearing, Remains
from streaming.errors import ClusterRequestFailed, ClusterUnreachable


def refused() -> list[int]:
    raise ClusterRequestFailed("PolicyViolationError")


def unreachable() -> list[int]:
    raise ClusterUnreachable("no broker answered")


def test_a_refusal_is_raised_until_there_were_too_many_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "CLEAR_TRIES_MAX", 3)
    tries = Clearing()
    for _ in range(2):
        with pytest.raises(ClusterRequestFailed):
            tries.remains(refused, lambda: (1, 2))
    assert tries.remains(lambda: [2], lambda: (1, 2)) == Remains((2,)), "the next refusal is the first of a row"
    for _ in range(2):
        with pytest.raises(ClusterRequestFailed):
            tries.remains(refused, lambda: (1, 2))
    with pytest.raises(ClusterUnreachable):
        tries.remains(unreachable, lambda: (1, 2))
    assert tries.remains(refused, lambda: (1, 2)) == Remains((1, 2), "PolicyViolationError")
