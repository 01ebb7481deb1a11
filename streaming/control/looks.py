"""The looks of one execution at its plan: where each movement stands, tick after tick, and what to ask about next.

A tick begins with one look. Before something is submitted, or the execution ends, it looks closer: at the partitions
that are concerned, or at the whole cluster (see `cluster_view`). Looks of one tick count as one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assignor_core.execution.accounting import what_was_made
from assignor_core.execution.attention import topics_in_play
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import (
    NO_LOOKS,
    PastLooks,
    Progress,
    hidden_in_flight,
    is_settled,
    progress_among,
    with_skipped,
)
from assignor_core.execution.refusals import NAMED_MAX
from assignor_core.identity import topics_made_again, without_topics
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, partition_name
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.wording import counted
from streaming.cluster.ports import ClusterReader
from streaming.control.cluster_view import ClusterView
from streaming.control.obstacles import replaced_broker_back
from streaming.control.records import ExecutionRecord


@dataclass(frozen=True, slots=True)
class Look:
    """One execution and the cluster as one tick sees them."""

    record: ExecutionRecord
    plan: Plan
    live: LiveCluster
    """What decides on the next step: see `ClusterView.of`."""
    now_ms: int
    refused: Mapping[PartitionKey, str]
    """Partitions whose move is skipped: Kafka's error, or why no disk has room."""
    not_elected: Mapping[PartitionKey, str]
    """Partitions whose election is skipped, with Kafka's error."""
    progress: Mapping[PartitionKey, Progress] = field(default_factory=dict)
    looks: PastLooks = NO_LOOKS
    hidden_in_flight: tuple[PartitionKey, ...] = ()
    """Partitions that metadata misses though the controller lists their move of the plan."""
    made_again: tuple[str, ...] = ()
    """Topics of the plan that were deleted and made again: `live` leaves them out."""
    obsolete: str | None = None
    """Why the rest of the plan is not to be carried out; None if it is."""

    @property
    def execution(self) -> Execution:
        """The one that is carried out."""
        return self.record.execution

    @property
    def moving(self) -> list[PartitionKey]:
        """Partitions of the plan that metadata shows on their way."""
        return [key for key, state in self.progress.items() if state is Progress.MOVING]

    @property
    def in_flight(self) -> list[PartitionKey]:
        """What must be cancelled before the plan is given up: all that moves, also where metadata misses it."""
        return [*self.moving, *self.hidden_in_flight]

    @property
    def result(self) -> str:
        """What was made of the plan, in words."""
        return what_was_made(self.progress, self.refused, self.not_elected) + self.strangers

    @property
    def strangers(self) -> str:
        """Names the topics that only bear the name of an approved one; empty where there are none."""
        named = ", ".join(self.made_again[:NAMED_MAX])
        return f"; deleted and made again, so no topics of this plan any more: {named}" if named else ""

    @property
    def unknown_moves(self) -> str:
        """What may be left in flight of an execution whose movements nobody knows any more."""
        if self.plan.movements:
            return ""
        moving = sorted(self.live.reassigning())
        named = f", first {partition_name(moving[0])}" if moving else ""
        reassigned = counted(len(moving), "partition is being reassigned", "partitions are being reassigned")
        return f"; its movements are not known: {reassigned}{named}"


class Looks:
    """Looks at the cluster for one execution; a caller calls `forget` before another execution. With `staged` a
    partition moves by one new replica at a time.
    """

    def __init__(self, cluster: ClusterReader, *, staged: bool) -> None:
        self._view = ClusterView(cluster)
        self._staged = staged
        self.forget(None)

    def forget(self, kept: KeptPlan | None) -> None:
        """Forgets the execution so far: from now on the looks are of another execution, of the plan `kept` if that is
        known.
        """
        self._topic_ids = {} if kept is None else kept.topic_ids
        observed = None if kept is None else kept.proposed.observed
        self.replaced: frozenset[int] = frozenset() if observed is None else observed.brokers_missing
        self._view.forget()
        self._in_play: frozenset[str] = frozenset()
        self._before = self._looks = NO_LOOKS
        """Counts before this tick, and with it."""
        self._plan: Plan | None = None
        self._movements: dict[PartitionKey, Movement] = {}
        self._states: dict[PartitionKey, Progress] = {}
        """Progress of the plan's movements at the newest look."""
        self._settled: dict[PartitionKey, LivePartition] = {}
        """Partitions of movements that are settled, as the newest look has shown them."""

    @property
    def partitions(self) -> Mapping[PartitionKey, LivePartition]:
        """All partitions of the cluster, as they were when the cluster was last asked about them."""
        return self._view.partitions

    def live(self, plan: Plan, *, whole: bool, now_ms: int) -> LiveCluster:
        """A new tick asks: what decides on the next step, or (with `whole`) everything; raises what `describe` does."""
        self._before = self._looks
        if whole:
            self._view.look_at_all(now_ms=now_ms)
        else:
            self._view.look(self._in_play, now_ms=now_ms)
        return self._shown(plan)

    def judged(
        self,
        record: ExecutionRecord,
        plan: Plan,
        live: LiveCluster,
        now_ms: int,
        *,
        refused: Mapping[PartitionKey, str],
        not_elected: Mapping[PartitionKey, str],
    ) -> Look:
        """What `live` shows of the plan, judged with the looks before it."""
        # By their names these would be the plan's. Seen as gone, nothing of them is submitted, elected or cancelled.
        made_again = topics_made_again(self._topic_ids, live)
        live = without_topics(live, made_again)
        changed = self._unsettled(plan, live)
        self._looks = self._before.after(plan, live, staged=self._staged, among=changed)
        self._states |= progress_among(changed, live, staged=self._staged, looks=self._looks)
        self._settle(changed, live)
        progress = with_skipped(self._states, refused, not_elected)
        self._in_play = topics_in_play({row.key: progress[row.key] for row in changed}, live)
        back = replaced_broker_back(plan, live, progress, self.replaced)
        hidden = tuple(hidden_in_flight(changed, progress, live, staged=self._staged))
        return Look(record, plan, live, now_ms, refused, not_elected, progress, self._looks, hidden, made_again, back)

    def _unsettled(self, plan: Plan, live: LiveCluster) -> list[Movement]:
        """Movements that this look may show elsewhere than the one before it; of a plan of thousands that is a few."""
        if self._plan is not plan:
            self._plan, self._movements = plan, {row.key: row for row in plan.movements}
            self._states, self._settled = {}, {}
        shown, settled, before = live.partitions.get, self._settled, self._before
        return [
            row
            for key, row in self._movements.items()
            if key not in settled or settled[key] is not shown(key) or before.counts(key)
        ]

    def _settle(self, changed: Iterable[Movement], live: LiveCluster) -> None:
        for row in changed:
            partition = live.partitions.get(row.key)
            if partition is not None and is_settled(row, partition, self._looks):
                self._settled[row.key] = partition
            else:
                self._settled.pop(row.key, None)

    def closer(self, look: Look, keys: Iterable[PartitionKey], *, whole: bool) -> LiveCluster | None:
        """Returns the cluster after a request for these partitions, or for everything; None if this tick has already
        read all that it would request.
        """
        unasked = self._view.unasked(keys)
        if whole and not self._view.is_whole:
            self._view.look_at_all(now_ms=look.now_ms)
        elif unasked:
            self._view.ask(unasked, now_ms=look.now_ms)
        else:
            return None
        return self._shown(look.plan)

    def again(self, look: Look, keys: Iterable[PartitionKey]) -> LiveCluster:
        """Returns the cluster after another request for these partitions, whether this tick has already read them or
        not.
        """
        self._view.ask({topic for topic, _ in keys}, now_ms=look.now_ms)
        return self._shown(look.plan)

    def asked_about(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> dict[PartitionKey, tuple[int, ...]]:
        """Returns those of `targets` whose partitions this tick has read."""
        unasked = self._view.unasked(targets)
        return {key: target for key, target in targets.items() if key[0] not in unasked}

    def submitted(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Kafka has taken these. The next looks ask about them: a small copy may have ended before the controller lists
        it.
        """
        self._in_play |= {topic for topic, _ in targets}
        self._looks = self._looks.taken(targets)

    def _shown(self, plan: Plan) -> LiveCluster:
        keys = self._movements if self._plan is plan else [movement.key for movement in plan.movements]
        return self._view.of(keys)
