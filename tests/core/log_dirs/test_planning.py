"""Plans of movements within a broker: what they move, what they never do, and how close relief is to the least."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.disks import FutureReplica, LogDirDescription, log_dir_rooms
from assignor_core.live import PartitionKey
from assignor_core.log_dirs.planning import (
    EVEN_WITHIN,
    BrokerDisks,
    FillPolicy,
    WithinBroker,
    empty,
    even_out,
    is_over,
    relieve,
)

POLICY = FillPolicy(fill_max=0.80, margin=0.05, reserve=0.10)


def log_dir(path: str, total: int, *sizes: int, others: int = 0, first: int = 0) -> LogDirDescription:
    """A log dir with replicas of these sizes, of partitions from `first` on; others fill some of it, too."""
    replicas = {("t", first + number): size for number, size in enumerate(sizes)}
    return LogDirDescription(path, total, max(0, total - others - sum(sizes)), replicas)


def after(disks: BrokerDisks, made: WithinBroker) -> BrokerDisks:
    """The log dirs once the movements are made."""
    rows = {row.path: row for row in disks.rows}
    for move in made.movements:
        size = int(move.bytes_to_move)
        source, target = rows[move.old_log_dir], rows[move.new_log_dir]
        assert target.usable_bytes is not None
        kept = {key: held for key, held in source.replica_bytes.items() if key != move.key}
        free = None if source.usable_bytes is None else source.usable_bytes + size
        rows[source.path] = replace(source, usable_bytes=free, replica_bytes=kept)
        got = {**target.replica_bytes, move.key: size}
        rows[target.path] = replace(target, usable_bytes=target.usable_bytes - size, replica_bytes=got)
    return replace(disks, rows=tuple(rows.values()))


def check(disks: BrokerDisks, made: WithinBroker, policy: FillPolicy = POLICY) -> None:
    """What holds for every plan within a broker."""
    rows = {row.path: row for row in disks.rows}
    rooms = log_dir_rooms(disks.rows, disks.full_bytes, reserve=policy.reserve)
    arriving: Counter[str] = Counter()
    for move in made.movements:
        assert move.broker == disks.broker
        assert move.key not in disks.fixed
        assert rows[move.old_log_dir].replica_bytes[move.key] == move.bytes_to_move
        assert rows[move.new_log_dir].takes_replicas
        arriving[move.new_log_dir] += int(move.bytes_to_move)
    assert len({move.key for move in made.movements}) == len(made.movements), "each moves once"
    assert not arriving.keys() & {move.old_log_dir for move in made.movements if move.bytes_to_move}
    for path, size in arriving.items():
        room = rooms[path]
        assert room is not None
        assert size <= room, "nothing that leaves is counted on"


@st.composite
def brokers(draw: st.DrawFn) -> BrokerDisks:
    """Up to four log dirs of unequal size, some of them offline, cordoned or silent about what is free."""
    rows, first = [], 0
    for number in range(draw(st.integers(1, 4))):
        total = draw(st.integers(500, 2_000))
        sizes = draw(st.lists(st.integers(0, 300), max_size=8))
        row = log_dir(f"/d{number}", total, *sizes, others=draw(st.integers(0, 300)), first=first)
        first += len(sizes)
        state = draw(st.sampled_from(["online"] * 6 + ["offline", "cordoned", "silent"]))
        if state == "offline":
            row = LogDirDescription(row.path, is_offline=True)
        elif state == "silent":
            row = replace(row, total_bytes=None, usable_bytes=None)
        rows.append(replace(row, is_cordoned=state == "cordoned"))
    keys = [key for row in rows for key in row.replica_bytes]
    fixed = draw(st.sets(st.sampled_from(keys), max_size=2)) if keys else set()
    return BrokerDisks(1, tuple(rows), fixed=frozenset(fixed))


Plan = Callable[[BrokerDisks], WithinBroker]
PLANS: list[Plan] = [
    lambda disks: relieve(disks, POLICY),
    lambda disks: even_out(disks, POLICY),
    lambda disks: empty(disks, disks.rows[0].path, POLICY),
]


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS, ids=["relieve", "even_out", "empty"])
@given(disks=brokers())
def test_no_log_dir_gets_more_than_it_has_room_for(plan: Plan, disks: BrokerDisks) -> None:
    made = plan(disks)
    check(disks, made)
    turned = [
        replace(row, replica_bytes=dict(reversed(list(row.replica_bytes.items())))) for row in reversed(disks.rows)
    ]
    first = disks.rows[0].path
    turned.sort(key=lambda row: row.path != first)  # `empty` is about the first one
    assert plan(replace(disks, rows=tuple(turned))) == made, "the order of rows changes nothing"


@pytest.mark.long
@given(disks=brokers())
def test_relief_brings_log_dirs_to_the_goal_or_names_them_and_is_not_due_again(disks: BrokerDisks) -> None:
    made = relieve(disks, POLICY)
    done = after(disks, made)
    named = " ".join(made.problems)
    for before, row in zip(sorted(disks.rows, key=str), sorted(done.rows, key=str), strict=False):
        if is_over(row, POLICY.fill_max):
            assert f"log dir {row.path} " in named
        if not is_over(before, POLICY.fill_max):
            assert before.path not in {move.old_log_dir for move in made.movements}
    targets = {move.new_log_dir for move in made.movements}
    for row in done.rows:
        if row.path in targets:
            assert row.used_share is not None
            assert row.used_share <= POLICY.goal + 1e-9
    if not made.problems:
        assert relieve(done, POLICY).movements == ()


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=9), others=st.integers(0, 600))
def test_relief_moves_at_most_twice_the_least(sizes: list[int], others: int) -> None:
    full = log_dir("/full", 1_000, *sizes, others=min(others, 1_000 - sum(sizes)))
    disks = BrokerDisks(1, [full, log_dir("/wide", 10**6)])
    moved = sum(move.bytes_to_move for move in relieve(disks, POLICY).movements)
    if not is_over(full, POLICY.fill_max):
        assert moved == 0
        return
    assert full.usable_bytes is not None
    excess = 1_000 - full.usable_bytes - POLICY.goal * 1_000
    sums = (sum(chosen) for count in range(1, len(sizes) + 1) for chosen in combinations(sizes, count))
    least = min((total for total in sums if total >= excess), default=None)
    if least is None:
        assert moved == sum(sizes), "as much as there is"
    else:
        assert excess <= moved <= 2 * least


def look_alike(disks: BrokerDisks) -> bool:
    shown = [(row.total_bytes, row.usable_bytes) for row in disks.rows if row.total_bytes is not None]
    return len(set(shown)) < len(shown)


@given(disks=brokers())
def test_evening_out_narrows_the_gap_and_leaves_nothing_to_do(disks: BrokerDisks) -> None:
    made = even_out(disks, POLICY)

    def shares(state: BrokerDisks) -> list[float]:
        return [row.used_share for row in state.rows if row.takes_replicas and row.used_share is not None]

    done = after(disks, made)
    if made.movements:
        assert max(shares(done)) <= max(shares(disks)) + 1e-9
        assert min(shares(done)) >= min(shares(disks)) - 1e-9
        assert sum(share**2 for share in shares(disks)) > 0
    # Disks that look alike pass for one volume until they differ: then it takes some plans.
    for _ in range(1 if not look_alike(disks) and not look_alike(done) else 10):
        made = even_out(done, POLICY)
        if not made.movements:
            break
        done = after(done, made)
    assert made.movements == ()


@given(disks=brokers())
def test_an_emptied_log_dir_is_empty_or_what_it_keeps_is_named(disks: BrokerDisks) -> None:
    made = empty(disks, disks.rows[0].path, POLICY)
    left = after(disks, made).rows[0].replica_bytes
    assert bool(left) == bool(made.problems)


def names(made: WithinBroker) -> list[tuple[int, str, str]]:
    return [(move.partition, move.old_log_dir, move.new_log_dir) for move in made.movements]


def test_small_replicas_that_do_it_together_go_before_one_large_one() -> None:
    full = log_dir("/a", 1_000, 500, 60, 40, others=250)  # 850 used, 750 is the goal
    assert names(relieve(BrokerDisks(1, [full, log_dir("/b", 1_000)]), POLICY)) == [(1, "/a", "/b"), (2, "/a", "/b")]


def test_a_log_dir_at_its_level_is_left_alone() -> None:
    at_level, wide = log_dir("/a", 1_000, 300, others=500), log_dir("/b", 1_000)
    assert relieve(BrokerDisks(1, [at_level, wide]), POLICY) == WithinBroker()
    over = log_dir("/a", 1_000, 300, others=501)
    assert names(relieve(BrokerDisks(1, [over, wide]), POLICY)) == [(0, "/a", "/b")]


def test_a_full_log_dir_without_a_place_for_its_replicas_is_named() -> None:
    full, other = log_dir("/a", 1_000, 200, others=700), log_dir("/b", 1_000, others=700)
    made = relieve(BrokerDisks(4, [full, other]), POLICY)
    assert made.movements == ()
    (problem,) = made.problems
    assert problem.startswith("log dir /a of broker 4 keeps 150 bytes above 75%: its other log dirs have no room")


def test_what_still_arrives_in_a_log_dir_counts_as_taken() -> None:
    full = log_dir("/a", 1_000, 100, 100, others=700)
    growing = LogDirDescription("/b", 1_000, 1_000, {}, future_replicas={("t", 1): FutureReplica(0)})
    disks = BrokerDisks(1, [full, growing], fixed={("t", 1)})
    assert names(relieve(disks, POLICY)) == [(0, "/a", "/b")]
    narrow = replace(growing, usable_bytes=440)  # 440 - 250 that stay free - 100 that arrive
    assert relieve(replace(disks, rows=[full, narrow]), POLICY).movements == ()


def test_a_cordoned_log_dir_is_relieved_and_gets_nothing() -> None:
    full = replace(log_dir("/a", 1_000, 100, others=800), is_cordoned=True)
    wide = log_dir("/b", 1_000)
    assert names(relieve(BrokerDisks(1, [full, wide]), POLICY)) == [(0, "/a", "/b")]
    made = relieve(BrokerDisks(1, [replace(full, is_cordoned=False), replace(wide, is_cordoned=True)]), POLICY)
    assert made.movements == ()
    assert made.problems


def test_an_even_broker_moves_nothing_and_an_uneven_one_until_it_is() -> None:
    uneven = BrokerDisks(1, [log_dir("/a", 1_000, *[50] * 12), log_dir("/b", 1_000, first=20)])
    made = even_out(uneven, POLICY)
    assert len(made.movements) == 6
    done = after(uneven, made)
    first, second = (row.used_share for row in done.rows)
    assert first is not None
    assert second is not None
    assert abs(first - second) <= EVEN_WITHIN
    assert even_out(BrokerDisks(1, [log_dir("/a", 1_000, 50), log_dir("/b", 1_000)]), POLICY) == WithinBroker()
    one: dict[PartitionKey, int] = {("t", 0): 900}
    assert even_out(BrokerDisks(1, [LogDirDescription("/a", 1_000, 100, one)]), POLICY) == WithinBroker()


def test_emptying_moves_even_what_holds_no_bytes() -> None:
    disks = BrokerDisks(1, [log_dir("/a", 1_000, 0, 10), log_dir("/b", 1_000)])
    assert names(empty(disks, "/a", POLICY)) == [(1, "/a", "/b"), (0, "/a", "/b")]
    fixed = replace(disks, fixed={("t", 0)})
    assert empty(fixed, "/a", POLICY).problems[0].endswith("or they are being moved: t-0")


def on_one_volume(total: int, free: int, *sizes: tuple[int, ...], first: int = 100) -> list[LogDirDescription]:
    """Log dirs /b0, /b1, ... with replicas of these sizes, which show the same volume."""
    rows = []
    for number, held in enumerate(sizes):
        row = log_dir(f"/b{number}", total, *held, first=first)
        rows.append(replace(row, usable_bytes=free))
        first += len(held)
    return rows


@pytest.mark.parametrize("plan", PLANS, ids=["relieve", "even_out", "empty"])
def test_log_dirs_on_one_volume_share_what_is_free_there(plan: Plan) -> None:
    full = log_dir("/a", 10_000, *[380] * 25)
    disks = BrokerDisks(1, [full, *on_one_volume(2_000, 1_200, (), ())])
    made = plan(disks)
    moved = sum(move.bytes_to_move for move in made.movements)
    assert 0 < moved <= 1_200 - 0.1 * 2_000
    assert {move.old_log_dir for move in made.movements} == {"/a"}
    # What still arrives in one of them takes the room of both.
    rows = [full, *on_one_volume(2_000, 1_200, (), (10,))]
    made = plan(BrokerDisks(1, rows, full_bytes={("t", 100): 610}))
    assert sum(move.bytes_to_move for move in made.movements) <= 1_200 - 600 - 0.1 * 2_000


def test_relief_keeps_a_volume_of_two_log_dirs_below_the_goal() -> None:
    full = log_dir("/a", 10_000, *[100] * 95)
    made = relieve(BrokerDisks(1, [full, *on_one_volume(4_000, 2_000, (), ())]), POLICY)
    assert sum(move.bytes_to_move for move in made.movements) <= POLICY.goal * 4_000 - 2_000
    assert made.problems


def test_evening_out_counts_a_volume_once_and_takes_from_each_log_dir_on_it() -> None:
    rows = [log_dir("/a", 1_000), *on_one_volume(1_000, 200, (100, 100, 100, 100), (100, 100, 100, 100))]
    made = even_out(BrokerDisks(1, rows), POLICY)
    assert sum(move.bytes_to_move for move in made.movements) == 400
    assert {move.new_log_dir for move in made.movements} == {"/a"}
    rows = [log_dir("/a", 1_000, *[100] * 8), *on_one_volume(1_000, 1_000, (), ())]
    made = even_out(BrokerDisks(1, rows), POLICY)
    assert sum(move.bytes_to_move for move in made.movements) == 400
