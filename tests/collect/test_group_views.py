"""Owners of a group's partitions: made once for each description of the group."""

from streaming.cluster.described_groups import SHARE, DescribedGroup, DescribedMember, ShareOffsets
from streaming.collect.group_table import GroupView, Owner
from streaming.collect.group_views import Owners, view_of

KEY = ("t", 0)


def described_with(member_id: str) -> DescribedGroup:
    return DescribedGroup("Stable", (DescribedMember(member_id, "c", owned=(KEY,), target=(KEY,)),))


def view(known: Owners, described: DescribedGroup, name: str = "g", kind: str | None = None) -> GroupView:
    return view_of(name, kind, "Stable", described, ShareOffsets({KEY: 5}), partitions=(), read_ms=1, known=known)


def test_owners_are_those_of_the_newest_description() -> None:
    known, first = Owners(), described_with("m")
    made = view(known, first)
    assert (made.owners, made.targets) == ({KEY: Owner("m", "c")}, {KEY: "m"})
    assert view(known, first).owners is made.owners
    assert view(known, described_with("n")).owners == {KEY: Owner("n", "c")}
    assert view(known, first).owners == made.owners
    assert view(known, described_with("other"), "h").owners == {KEY: Owner("other", "c")}


def test_a_group_that_is_gone_is_forgotten() -> None:
    known, first = Owners(), described_with("m")
    owners = {name: view(known, first, name).owners for name in ("g", "h")}
    known.forget_others({"h"})
    assert view(known, first).owners is not owners["g"]
    assert view(known, first, "h").owners is owners["h"]


def test_nobody_owns_a_partition_of_a_share_group_alone() -> None:
    made = view(Owners(), described_with("m"), kind=SHARE)
    assert (made.owners, made.targets, made.members) == ({}, {}, 1)
