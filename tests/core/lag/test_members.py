"""Advice on members: never fewer than the work needs, each option as full as it says, none where none helps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.lag.members import FILL_MAX, advise_members


def test_a_partition_too_heavy_for_any_member_is_said_to_be() -> None:
    advice = advise_members({("t", 0): 90.0, ("t", 1): 5.0}, {}, capacity_per_sec=100.0)
    assert (advice.needed, advice.options, advice.heaviest_partition_ratio) == (None, (), 0.9)


def test_who_reads_all_that_is_written_needs_no_more_and_moves_nothing() -> None:
    rates = {("t", p): 10.0 for p in range(4)}
    advice = advise_members(rates, dict.fromkeys(rates, "m"), capacity_per_sec=100.0)
    assert advice.needed == 1
    assert advice.options[0].r_score == 0.0


def test_idle_partitions_that_go_to_a_new_member_cost_nothing() -> None:
    rates = {("t", p): 0.0 for p in range(2)}
    advice = advise_members(rates, dict.fromkeys(rates, "m"), capacity_per_sec=100.0)
    assert [option.r_score for option in advice.options] == [0.0, 0.0]


def test_a_member_that_can_read_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="above 0"):
        advise_members({("t", 0): 1.0}, {}, capacity_per_sec=0.0)


@pytest.mark.parametrize(("rate", "capacity_per_sec"), [(0.1, 0.125), (0.3, 0.375), (0.7, 0.875)])
def test_what_fills_members_to_the_last_bit_still_fits(rate: float, capacity_per_sec: float) -> None:
    """Three times 0.1 is more than 0.3: that asked for a fourth member, which three partitions can't have."""
    advice = advise_members({("t", p): rate for p in range(3)}, {}, capacity_per_sec)
    assert (advice.needed, advice.bound) == (3, 3)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 80), min_size=1, max_size=24), st.integers(1, 4))
def test_needed_holds_the_work_and_is_not_below_the_bound(written: list[int], members: int) -> None:
    rates = {("t", p): float(rate) for p, rate in enumerate(written)}
    owners = {tp: f"m{tp[1] % members}" for tp in rates}
    advice = advise_members(rates, owners, capacity_per_sec=100.0)
    assert advice.needed is not None  # as many members as partitions always hold it, each being at most 80 of 100
    assert advice.bound <= advice.needed <= len(written)
    for option in advice.options:
        assert option.heaviest_ratio * option.members * 100 >= sum(written) - 1e-6
        assert option.r_score <= sum(written) / 100
    assert advice.options[0].heaviest_ratio <= FILL_MAX + 1e-9
