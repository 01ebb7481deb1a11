"""Owners of a group's partitions: made once for each description, of partitions that exist, within bounds."""

import pytest

from assignor_core.live import PartitionKey
from streaming.cluster.described_groups import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    TEXT_MAX,
    DescribedGroup,
    DescribedMember,
    ShareOffsets,
)
from streaming.collect.group_table import GroupTable, GroupView, Owner, Owners, Reported, view_of
from tests.collect.by_row import offset_rows

KEY = ("t", 0)
EXISTING = {"t": 100}
COMMITTED = ShareOffsets({KEY: 5})
REPORTED = Reported(EXISTING, uncommitted_max=10)


def described_with(member_id: str) -> DescribedGroup:
    return DescribedGroup("Stable", (DescribedMember(member_id, "c", owned=(KEY,), target=(KEY,)),))


def view(
    known: Owners, described: DescribedGroup, name: str = "g", kind: str | None = None,
    offsets: ShareOffsets = COMMITTED, reported: Reported = REPORTED,
) -> GroupView:  # fmt: skip
    return view_of(name, kind, "Stable", described, offsets, reported=reported, read_ms=1, known=known)


def keys(*numbers: int, topic: str = "t") -> tuple[PartitionKey, ...]:
    return tuple((topic, number) for number in numbers)


def test_owners_are_those_of_the_newest_description() -> None:
    known, first = Owners(), described_with("m")
    made = view(known, first)
    assert (made.owners, made.targets) == ({KEY: Owner("m", "c")}, {KEY: "m"})
    assert view(known, first).owners is made.owners
    assert view(known, described_with("n")).owners == {KEY: Owner("n", "c")}
    assert view(known, first).owners == made.owners
    assert view(known, described_with("other"), "h").owners == {KEY: Owner("other", "c")}


def test_owners_are_made_anew_if_there_are_other_partitions() -> None:
    known, described = Owners(), DescribedGroup("Stable", (DescribedMember("m", "c", owned=keys(0, topic="new")),))
    assert (view(known, described).owners, view(known, described).left_out) == ({}, 1)
    made = view(known, described, reported=Reported({**EXISTING, "new": 1}, 10))
    assert (set(made.owners), made.left_out) == ({("new", 0)}, 0)


def test_a_group_that_is_gone_is_forgotten() -> None:
    known, first = Owners(), described_with("m")
    owners = {name: view(known, first, name).owners for name in ("g", "h")}
    known.forget_others({"h"})
    assert view(known, first).owners is not owners["g"]
    assert view(known, first, "h").owners is owners["h"]


def test_nobody_owns_a_partition_of_a_share_group_alone() -> None:
    made = view(Owners(), described_with("m"), kind=SHARE)
    assert (made.owners, made.targets, made.members) == ({}, {}, 1)


ABSENT = (*keys(*range(1_000), topic="not there"), ("t", 100), ("t", -1))


@pytest.mark.parametrize("kind", [None, CLASSIC, CONSUMER, SHARE, STREAMS])
def test_partitions_that_do_not_exist_are_counted_and_not_reported(kind: str | None) -> None:
    member = DescribedMember("m", "c", owned=(*ABSENT, KEY), target=(*ABSENT, KEY))
    offsets = dict.fromkeys((*ABSENT, KEY), 7)
    shared = kind == SHARE
    asked = ShareOffsets(offsets if shared else offset_rows(offsets), unread=ABSENT if shared else ())
    one = Reported({"t": 1}, uncommitted_max=10)
    made = view(Owners(), DescribedGroup("Stable", (member,)), kind=kind, offsets=asked, reported=one)
    assert GroupTable({"g": made}).keys_by_group == [[KEY]]
    assert made.left_out == len(ABSENT) * (2 if shared else 3)


def test_members_share_what_a_group_may_own_without_a_commit() -> None:
    """A member that claims everything leaves the others their part, and what the group has committed is reported."""
    greedy = DescribedMember("greedy", "c", owned=keys(*range(80)), target=keys(*range(80)))
    other = DescribedMember("other", "c", owned=keys(*range(90, 95)))
    committed = ShareOffsets(offset_rows(dict.fromkeys(keys(70, 71), 1)))
    made = view(Owners(), DescribedGroup("Stable", (greedy, other)), offsets=committed)
    owned: dict[str, list[int]] = {}
    for (_, number), owner in made.owners.items():
        owned.setdefault(owner.member_id, []).append(number)
    assert owned == {"greedy": [0, 1, 2, 3, 4, 70, 71], "other": [90, 91, 92, 93, 94]}
    assert made.targets.keys() == set(keys(0, 1, 2, 3, 4, 70, 71))
    assert made.left_out == 2 * (80 - 7)


def test_names_that_clients_chose_are_of_bounded_length() -> None:
    long = "ü" * 30_000
    member = DescribedMember(f"{long}-1f", long, (KEY,), (KEY,), long, long, long, long)
    twin = DescribedMember(f"{long}-2f", "c", keys(1))
    made = view(Owners(), DescribedGroup("Stable", (member, twin), assignor=long))
    owner = made.owners[KEY]
    texts = [getattr(owner, name) for name in Owner.__slots__] + [made.assignor, made.targets[KEY]]
    assert {len(text) for text in texts} == {TEXT_MAX}
    assert owner.member_id != made.owners["t", 1].member_id, "a member id ends with what Kafka added to it"


@pytest.mark.parametrize("kind", [None, CLASSIC, CONSUMER, STREAMS])
def test_partitions_that_members_have_not_noticed_are_reported_within_the_budget(kind: str | None) -> None:
    """Two of a topic are owned, one more has an offset of an earlier member, and the others were added lately."""
    member = DescribedMember("m", "c", owned=keys(0, 1), target=keys(0, 1, 2))
    committed = ShareOffsets(offset_rows(dict.fromkeys(keys(0, 3), 1)))
    group = DescribedGroup("Stable", (member,))
    six = Reported({"t": 6, "other": 9}, uncommitted_max=10)
    made = view(Owners(), group, kind=kind, offsets=committed, reported=six)
    assert made.unnoticed == keys(4, 5)
    assert GroupTable({"g": made}).keys_by_group == [list(keys(*range(6)))]
    many = Reported({"t": 100}, uncommitted_max=10)
    assert view(Owners(), group, kind=kind, offsets=committed, reported=many).unnoticed == keys(*range(4, 12))
    few = Reported({"t": 100}, uncommitted_max=2)
    assert view(Owners(), group, kind=kind, offsets=committed, reported=few).unnoticed == ()


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance"])
def test_a_group_whose_members_own_nothing_has_not_failed_to_notice_anything(state: str) -> None:
    idle = DescribedGroup(state, (DescribedMember("m", "c"),))
    assert view(Owners(), idle).unnoticed == ()
    shared = DescribedGroup("Stable", (DescribedMember("m", "c", owned=keys(0)),))
    assert view(Owners(), shared, kind=SHARE).unnoticed == ()


def test_added_partitions_are_noticed_as_soon_as_members_own_them() -> None:
    known = Owners()
    before = DescribedGroup("Stable", (DescribedMember("m", "c", owned=keys(0, 1)),))
    assert view(known, before, reported=Reported({"t": 2}, 10)).unnoticed == ()
    assert view(known, before, reported=Reported({"t": 3}, 10)).unnoticed == keys(2)
    after = DescribedGroup("Stable", (DescribedMember("m", "c", owned=keys(0, 1, 2)),))
    assert view(known, after, reported=Reported({"t": 3}, 10)).unnoticed == ()
