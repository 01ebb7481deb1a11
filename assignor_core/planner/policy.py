"""What a plan may do and what it aims at: every knob of the planner, with what it does.

Fractions are of a broker's fair share unless noted otherwise. The module holds values only.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from assignor_core.errors import InputError
from assignor_core.policies import check_limits, knob
from assignor_core.resources import Resource
from assignor_core.wording import counted, first_named

LEADER_BAND_MORE = 0.02
"""By default leadership, which moves in whole partitions and copies nothing, may stay so much further from even."""

NAMED_MAX = 5
"""Brokers or topics that a reason names."""
FILLED_BAND = 0.2
"""Part of what the others have too much that they keep where an empty broker is filled: it gets most of its share."""
COUNT_BAND = 0.5
"""How far above a fair share counts may be where loads are what brokers carry. Where no partition has any load, counts
are all of it, and have the band of loads unless a policy names another count band than this.
"""

FailoverHeadroom = Literal["none", "broker", "rack"]
"""What may go offline without a broker getting above its capacity: nothing, any one broker, or any one rack."""


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """Topics, and the brokers that alone may hold them: those with these ids, or those in these racks."""

    topics: frozenset[str]
    brokers: frozenset[int] = frozenset()
    racks: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if bool(self.brokers) == bool(self.racks):
            raise InputError("planner policy broker_sets: a set needs brokers or racks, and not both")

    @property
    def words(self) -> str:
        """The brokers of the set.

        >>> BrokerSet(frozenset({"t"}), brokers=frozenset({2, 1})).words
        'brokers 1, 2'
        >>> BrokerSet(frozenset({"t"}), racks=frozenset({"a"})).words
        'brokers of rack a'
        """
        if self.brokers:
            return f"broker{'s' if len(self.brokers) > 1 else ''} {first_named(sorted(self.brokers), NAMED_MAX)}"
        return f"brokers of rack{'s' if len(self.racks) > 1 else ''} {first_named(sorted(self.racks), NAMED_MAX)}"

    def admits(self, broker: int, rack: str | None) -> bool:
        """Whether a broker in this rack belongs to the set."""
        return broker in self.brokers or rack in self.racks

    @property
    def named_topics(self) -> str:
        """The first topics by name, and how many more there are."""
        return first_named(sorted(self.topics), NAMED_MAX)


@dataclass(frozen=True, slots=True)
class PlannerPolicy:
    """Aims, limits and exclusions of one plan; raises InputError on a value out of range."""

    band: float = knob(
        0.03,
        "A plan aims at no broker above 1 + band of its fair share of bytes in, bytes out and disk; a wider band moves "
        "less.",
        ge=0,
        le=10,
    )
    leader_band: float | None = knob(
        None,
        f"The band of leader bytes in; null: band + {LEADER_BAND_MORE}, as leadership moves in whole partitions.",
        ge=0,
        le=10,
    )
    count_band: float = knob(
        COUNT_BAND,
        "The band of the numbers of leaders and replicas, a soft limit: equal numbers cost much and gain little.",
        ge=0,
        le=10,
    )
    replicas_max: int | None = knob(
        None,
        "Most replicas on any one broker. A broker that has as many or more takes a replica only in exchange for "
        "another; null: no limit.",
        ge=1,
    )
    keep_racks: bool = knob(False, "Replicas move within their racks only.")
    leader_racks: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = ()
    """Topics, and the racks whose brokers should lead them, the preferred first. The balance of loads matters more."""
    broker_sets: tuple[BrokerSet, ...] = ()
    """Topics that live on some brokers only; the first set that names a topic counts. A hard rule."""
    spread_topics: frozenset[str] = frozenset()
    """Topics whose replicas and leaders should be spread evenly over brokers. Loads below their targets go first."""
    leaders_min: tuple[tuple[frozenset[str], int], ...] = ()
    """Topics, and how many of their leaders each broker should have at least; the first that names a topic counts."""
    headroom: float = knob(
        0.0, "Share of each capacity that a plan leaves free: no broker above capacity x (1 - headroom).", ge=0, lt=1
    )
    failover_headroom: FailoverHeadroom = knob(
        "none",
        "Plans aim at room for a failure: no broker exceeds its capacity of bytes out if any one broker, or any one "
        "rack, goes offline and others take over its leaders. none: no such aim.",
    )
    movements_max: int | None = knob(None, "A plan changes no more partitions than this; null: no limit.", ge=0)
    bytes_max: float | None = knob(None, "A plan copies no more than this; null: no limit.", unit="bytes", ge=0)
    inflow_max: float | None = knob(
        None, "A plan copies no more than this to any one broker; null: no limit.", unit="bytes", ge=0
    )
    leaders_only: bool = False
    """Change leadership only: no bytes are copied."""
    rules_only: bool = False
    """Restore hard rules only, racks and brokers that must end empty: nothing moves for balance."""
    only_brokers: frozenset[int] = frozenset()
    """Relieve only these brokers: only their replicas move. Empty means all."""
    only_topics: frozenset[str] = frozenset()
    """Move only these topics. Empty means all."""
    excluded_topics: frozenset[str] = frozenset()
    """Never touch these topics."""
    excluded_brokers: frozenset[int] = frozenset()
    """Neither take replicas from these brokers nor give them any."""
    pinned_partitions: frozenset[tuple[str, int]] = frozenset()
    """Move these (topic, partition) only where a hard rule asks for it, never for balance: their load is not known."""
    drain: frozenset[int] = frozenset()
    """Treat these brokers as draining."""
    add: frozenset[int] = frozenset()
    """Move replicas only to these brokers; leadership may move anywhere. Empty means all."""
    gain_needed: tuple[str, float] | None = None
    """A resource, and by how much its max over mean must fall for a plan to be of use: where the lower bound shows that
    none can do that, none is searched for.
    """
    throttle_bytes_per_sec: float | None = knob(
        None,
        "Replication throttle of a broker by which durations of plans are estimated; null: that of control.",
        unit="bytes/s",
        ge=1,
    )
    wave_movements_max: int = knob(1000, "A wave of a plan has no more movements than this.", ge=1, le=1_000_000)

    def __post_init__(self) -> None:
        check_limits(self, "planner policy")
        if not all(racks for _, racks in self.leader_racks):
            raise InputError("planner policy leader_racks: found no rack, allowed are one or more")
        if any(least < 1 for _, least in self.leaders_min):
            raise InputError("planner policy leaders_min: found less than one leader, allowed are 1 or more")
        if self.failover_headroom not in get_args(FailoverHeadroom):
            allowed = ", ".join(get_args(FailoverHeadroom))
            raise InputError(f"planner policy failover_headroom: found {self.failover_headroom}, allowed are {allowed}")

    def band_of(self, resource: Resource) -> float:
        """The band of `resource`.

        >>> policy = PlannerPolicy(band=0.1)
        >>> policy.band_of(Resource.DISK), policy.band_of(Resource.LEADERS)
        (0.1, 0.5)
        >>> PlannerPolicy(leader_band=0.2).band_of(Resource.LEADER_BYTES_IN)
        0.2
        """
        if resource is Resource.LEADER_BYTES_IN:
            return self.leader_limit
        return self.count_band if resource.is_count else self.band

    def for_relief(self, brokers: frozenset[int]) -> Self:
        """Returns this policy for a plan that moves only replicas of `brokers`, which fail or leave: internal topics
        move too, and neither budgets nor headroom hold the plan back.
        """
        return replace(
            self, only_brokers=brokers, excluded_topics=frozenset(), headroom=0.0,
            movements_max=None, bytes_max=None, inflow_max=None,
        )  # fmt: skip

    def to_fill(self, brokers: frozenset[int], in_use: int) -> Self:
        """Returns this policy for a plan that fills `brokers`, which hold next to nothing, of all that are `in_use`.

        Their bands are so narrow that they are filled however many others there are: of sixty brokers and an empty one,
        none is above 1.02 of its fair share.

        >>> policy = PlannerPolicy().to_fill(frozenset({61}), 61)
        >>> policy.add, round(policy.band, 4), round(policy.leader_limit, 4)
        (frozenset({61}), 0.0033, 0.0033)
        """
        left = FILLED_BAND * len(brokers) / max(1, in_use - len(brokers))
        return replace(self, add=brokers, band=min(self.band, left), leader_band=min(self.leader_limit, left))

    @property
    def narrowed_by(self) -> tuple[str, ...]:
        """What keeps the search from brokers, topics or partitions, each in words.

        >>> PlannerPolicy(add=frozenset({4, 5}), excluded_topics=frozenset({"logs"})).narrowed_by
        ('replicas go only to brokers 4, 5', 'topic logs is excluded')
        """
        words = (
            (self.only_brokers, "only replicas of broker {} may move", "only replicas of brokers {} may move"),
            (self.add, "replicas go only to broker {}", "replicas go only to brokers {}"),
            (self.excluded_brokers, "broker {} is excluded", "brokers {} are excluded"),
            (self.only_topics, "only topic {} may move", "only topics {} may move"),
            (self.excluded_topics, "topic {} is excluded", "topics {} are excluded"),
        )
        named = [
            (one if len(names) == 1 else more).format(first_named(sorted(names), NAMED_MAX))
            for names, one, more in words
            if names
        ]
        if self.keep_racks:
            named.append("replicas stay in their racks")
        named += [f"{one.named_topics} may only be on {one.words}" for one in self.broker_sets if one.topics]
        if self.pinned_partitions:
            named.append(counted(len(self.pinned_partitions), "partition is pinned", "partitions are pinned"))
        return tuple(named)

    @property
    def has_budget(self) -> bool:
        """Whether the policy limits movements, bytes or what a broker receives."""
        return any(budget is not None for budget in (self.movements_max, self.bytes_max, self.inflow_max))

    @property
    def leader_limit(self) -> float:
        """The band of leader bytes in that is in force."""
        return self.band + LEADER_BAND_MORE if self.leader_band is None else self.leader_band
