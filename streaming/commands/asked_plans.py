"""Plans whose replica lists a person asks for: those of a file of Kafka's own tool, or another replication factor.

`plan --reassignment FILE`, `plan --replication-factor` and `apply FILE` come here. Such a plan is shown, kept and
carried out like any other: in waves, throttled, with what it copies and breaks said before.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey
from assignor_core.model import ClusterState
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.reassignment_file import ReplicaLists, is_reassignment_file, replica_lists
from assignor_core.wording import counted
from streaming.commands.json_lines import InvalidJson, each_key_once
from streaming.commands.options import live_cluster
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.settings import KafkaSettings, Settings

if TYPE_CHECKING:
    from assignor_core.live import LiveCluster

FACTOR = re.compile(r"(?P<pattern>.+)=(?P<factor>[1-9]\d{0,4})", re.ASCII)
"""A pattern of topics and the replication factor that they should have."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asks for: the lists of a file, or factors by topic pattern; one of both."""

    name: str
    """The option or the file, for messages."""
    lists: ReplicaLists | None = None
    factors: Mapping[str, int] | None = None

    @classmethod
    def of_options(cls, reassignment: Path | None, factors: Sequence[str]) -> Self | None:
        """What `--reassignment` and `--replication-factor` ask for, None for neither; raises UsageProblem."""
        if reassignment is not None and factors:
            raise UsageProblem("--reassignment: names every replica, so it can't go with --replication-factor")
        if reassignment is not None:
            return cls.of_content(str(reassignment), _json_of(reassignment))
        return cls("--replication-factor", factors=_factors(factors)) if factors else None

    @classmethod
    def of_content(cls, file: str, content: object) -> Self:
        """What a file of `kafka-reassign-partitions` with this content asks for; raises UsageProblem."""
        try:
            if not is_reassignment_file(content):
                raise InputError("has no list of partitions; expected is a file of kafka-reassign-partitions")
            return cls(file, lists=replica_lists(content))
        except InputError as error:
            raise UsageProblem(f"reassignment file {file}: {error}") from None

    def plan(
        self, cluster: ClusterState, policy: PlannerPolicy, in_sync: Mapping[PartitionKey, Collection[int]]
    ) -> Plan:
        """The plan that does it on `cluster`; raises InputError for what can't be had there."""
        from assignor_core.planner.asked import plan_as_asked
        from assignor_core.planner.replication_factor import lists_with_factor

        if self.lists is not None:
            return plan_as_asked(cluster, policy, self.lists, f"asked for by {Path(self.name).name}")
        assert self.factors is not None
        topics = {row.topic for row in cluster.partitions}
        by_topic = factors_by_topic(self.factors, topics, policy.excluded_topics)
        wanted = lists_with_factor(cluster, policy, by_topic, in_sync)
        return plan_as_asked(cluster, policy, wanted, "replication factor that was asked for")


def plan_live(
    settings: Settings, asked: Asked, policy_for: "Callable[[LiveCluster], PlannerPolicy]", *, now_ms: int
) -> ProposedPlan:
    """The plan on the live cluster, which moves nothing yet and is not kept; raises InputError, NothingToPlanOn.

    Whoever shows the plan as one to carry out, or carries it out, calls `check_writable` on it.
    """
    from streaming.control.planning import propose_asked
    from streaming.control.wiring import window_tables_of

    def asked_for(live: "LiveCluster") -> Callable[[ClusterState, PlannerPolicy], Plan]:
        in_sync = {key: row.isr for key, row in live.partitions.items()}
        return lambda cluster, policy: asked.plan(cluster, policy, in_sync)

    with live_cluster(settings) as cluster:
        return propose_asked(
            cluster, window_tables_of(settings), settings.planner,
            policy_for=policy_for, asked_for=asked_for, now_ms=now_ms,
        )  # fmt: skip


def check_writable(kafka: KafkaSettings, plan: Plan) -> None:
    """Raises RefusedForSafety for a plan after which a topic has fewer replicas than its `min.insync.replicas`: then
    nobody could write to the topic with acks=all.
    """
    from streaming.cluster.clients import admin_client
    from streaming.cluster.topics import min_in_sync

    fewer = [row for row in plan.movements if len(row.new_replicas) < len(row.old_replicas)]
    if not fewer:
        return
    with closing(admin_client(kafka)) as admin:
        least = min_in_sync(admin, {row.topic for row in fewer})
    for row in fewer:
        factor, needed = len(row.new_replicas), least.get(row.topic, 1)
        if factor < needed:
            replicas = counted(factor, "replica", "replicas")
            raise RefusedForSafety(
                f"topic {row.topic}: min.insync.replicas is {needed}, so with {replicas} nobody could write with "
                "acks=all: lower that setting first"
            )


def factors_by_topic(factors: Mapping[str, int], topics: Collection[str], excluded: Collection[str]) -> dict[str, int]:
    """The factor of each topic that a pattern names; raises InputError for a pattern that names none, and for two that
    contradict each other. Topics that are `excluded` from plans are meant where they are named in full alone.

    >>> factors_by_topic({"orders.*": 3, "__consumer_offsets": 3}, {"orders", "orders-2", "__consumer_offsets"}, ())
    {'orders': 3, 'orders-2': 3, '__consumer_offsets': 3}
    """
    found: dict[str, int] = {}
    for pattern, factor in factors.items():
        for topic in topics_named(pattern, topics, "--replication-factor"):
            if topic in excluded and topic != pattern:
                continue
            if found.setdefault(topic, factor) != factor:
                raise InputError(f"--replication-factor: asks for {found[topic]} and for {factor} of topic {topic}")
    return found


def topics_named(text: str, topics: Collection[str], option: str) -> list[str]:
    """The topic of this name, else those that match it whole as a regular expression; raises InputError for none.

    >>> topics_named("orders.*", ["orders", "orders.eu", "pay"], "--only-topic")
    ['orders', 'orders.eu']
    >>> topics_named("a.b", ["a.b", "axb"], "--only-topic")
    ['a.b']
    """
    if text in topics:
        return [text]
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{option}: there is no topic {text!r}, and as a pattern it is wrong: {error}") from None
    matching = sorted(topic for topic in topics if pattern.fullmatch(topic))
    if not matching:
        close = difflib.get_close_matches(text, topics, n=1, cutoff=0.6)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{option}: there is no topic {text!r}{meant}")
    return matching


def _factors(texts: Sequence[str]) -> dict[str, int]:
    factors: dict[str, int] = {}
    for text in texts:
        match = FACTOR.fullmatch(text)
        if match is None:
            raise UsageProblem(
                f"--replication-factor {text}: allowed is TOPIC=NUMBER or PATTERN=NUMBER, as 'orders.*=3'"
            )
        factors[match["pattern"]] = int(match["factor"])
    return factors


def _json_of(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=each_key_once)
    except OSError as error:
        raise UsageProblem(f"reassignment file {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"reassignment file {file}: is no JSON: {error}") from None
    except InvalidJson as error:
        raise UsageProblem(f"reassignment file {file}: {error}") from None
