"""When the next look begins: on time, or after a rest."""

import pytest

from streaming.collect.run import pause_s


@pytest.mark.parametrize(
    ("took_s", "interval_s", "expected_s"),
    [(0.0, 10.0, 10.0), (4.0, 10.0, 6.0), (10.0, 10.0, 0.0), (20.0, 10.0, 2.0)],
)
def test_a_look_that_takes_longer_than_the_interval_stretches_it(
    took_s: float, interval_s: float, expected_s: float
) -> None:
    assert pause_s(took_s, interval_s) == expected_s
