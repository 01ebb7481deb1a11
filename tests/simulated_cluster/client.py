"""A simulated cluster as an admin client shows it: the ports of `streaming.cluster.ports` by their shape.

Differences from a real client are faults: tests/conformance runs the same behaviours here and on real brokers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from assignor_core.disks import NO_UPLOADS, LogDirDescription, Uploads
from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.marker import Marker
from assignor_core.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    REPLICATION_RATES,
    Sides,
    ThrottledReplicas,
    entries_text,
    is_foreign,
    pieces,
)
from assignor_core.wording import many
from tests.simulated_cluster import controller
from tests.simulated_cluster.cluster import SimulatedCluster
from tests.simulated_cluster.faults import RequestKind
from tests.simulated_cluster.log_dir_client import LogDirClient, described
from tests.simulated_cluster.throttling import CONNECTION_CLOSED, append_error, hear


@dataclass(slots=True)
class _Metadata:
    """What one broker knew of the cluster at one time, or has known since where nothing has changed."""

    at_ms: int
    changes: int
    """Of the cluster until then."""
    broker_racks: Mapping[int, str | None]
    partitions: Mapping[PartitionKey, LivePartition]
    topic_ids: Mapping[str, str]


class SimulatedClient(LogDirClient):
    """One client of a simulated cluster; see `RequestSender` for what it is made with."""

    _metadata: _Metadata | None = None
    _answer: tuple[_Metadata, int, frozenset[str], LiveCluster] | None = None
    """What `describe` answered last, and what it was made of."""

    def connect(self, cluster: SimulatedCluster) -> None:
        """From now on the address leads to another cluster."""
        self.cluster, self._metadata, self._answer = cluster, None, None

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """Brokers in metadata, partitions of these topics (of all where None); reassignments are the controller's, as
        of now.
        """
        return self._send(RequestKind.DESCRIBE, lambda: self._described(topics), of_controller=True)

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Log dirs of these brokers in metadata (of all where None), with the replicas of these partitions; those that
        don't answer are left out.
        """
        return self._send(RequestKind.LOG_DIRS, lambda: self._log_dirs(brokers, partitions))

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:  # noqa: ARG002
        """Nothing is uploaded: the simulated cluster has no remote storage."""
        return NO_UPLOADS

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        """Start reassignments, or (None) cancel them; raises after the partitions that are not refused were done."""
        self._before_change()
        answers = self._send(RequestKind.REASSIGN, lambda: self._reassigned(targets), of_controller=True)
        refused = {
            key: error
            for key, error in answers.items()
            if error is not None and not (targets[key] is None and error == controller.NOT_IN_PROGRESS)
        }
        if refused:
            raise self._refusal("reassignment", refused, self._errors.reassignments_refused)

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        """Make first replicas the leaders; raises after the others were elected if one of them is not in sync."""
        keys = list(partitions)
        self._before_change()
        answers = self._send(RequestKind.ELECT, lambda: self._elected(keys), of_controller=True)
        refused = {key: error for key, error in answers.items() if error not in (None, controller.NOT_NEEDED)}
        if refused:
            raise self._refusal("election", refused, self._errors.elections_refused)

    def throttle_rates(self, brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        """Rates that are set, bytes/s, by broker and setting, of these brokers in metadata (of all where None)."""
        return self._send(RequestKind.READ_THROTTLES, lambda: self._rates(brokers))

    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        """Lists of throttled replicas that are set, by (topic, setting), as brokers have heard of them."""
        names = sorted(set(topics))
        return self._send(RequestKind.READ_THROTTLES, lambda: self._lists(names))

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        """Add entries to the lists of topics that exist; refused beside `*`, and where a list would be too long."""
        for sides in pieces(leaders, followers):
            self._before_change()
            self._send(RequestKind.CHANGE_THROTTLES, partial(self._add_to_lists, sides))

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set both rates of brokers in metadata; a rate that somebody else has set stays."""
        self._before_change()
        changes = self._but_foreign(rates_bytes_per_sec)
        self._send(RequestKind.CHANGE_THROTTLES, lambda: self._change_rates(changes))

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        """Remove entries and rates, those of others only if `untagged`; returns the brokers that are down and therefore
        keep their rates.
        """
        self._before_change()
        changes = self._but_foreign(dict.fromkeys(brokers), untagged=untagged)
        return self._send(RequestKind.CHANGE_THROTTLES, lambda: self._clear(changes, leaders, followers))

    def markers(self) -> tuple[Marker, ...]:
        """Markers of rebalancers, held or released, by lease id."""
        return self._send(RequestKind.READ_MARKERS, self._sorted_markers)

    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        """Write it, in the place of those that are replaced."""
        self._before_change()
        self._send(RequestKind.WRITE_MARKER, lambda: self._put_marker(marker, replaced), of_controller=True)

    def _sorted_markers(self) -> tuple[Marker, ...]:
        self._check_cluster()
        return tuple(sorted(self.cluster.placement.markers, key=lambda row: row.identity))

    def _put_marker(self, marker: Marker, replaced: Collection[Marker]) -> None:
        """What a broker keys markers by is their lease, owner, holder and start."""
        gone = {_marker_key(row) for row in (*replaced, marker)}
        markers = self.cluster.contents.markers
        markers[:] = [row for row in markers if _marker_key(row) not in gone] + [marker]

    def _described(self, topics: Collection[str] | None) -> LiveCluster:
        self._check_cluster()
        metadata, changes = self._current_metadata(), self.cluster.placement.changes
        hidden = frozenset(self.faults.hidden_topics)
        if self._answer is None or self._answer[0] is not metadata or self._answer[1:3] != (changes, hidden):
            self._answer = (metadata, changes, hidden, self._described_anew(metadata, hidden))
        whole = self._answer[3]
        if topics is None:
            return whole
        asked = frozenset(topics)
        partitions = {key: row for key, row in whole.partitions.items() if key[0] in asked}
        ids = {name: topic_id for name, topic_id in whole.topic_ids.items() if name in asked}
        return replace(whole, partitions=partitions, topic_ids=ids, hidden_topics=hidden & asked)

    def _described_anew(self, metadata: _Metadata, hidden: frozenset[str]) -> LiveCluster:
        partitions = {}
        for key, seen in metadata.partitions.items():
            if key[0] not in hidden:
                now = self.cluster.placement.partition(key)
                partitions[key] = seen.with_reassignment(now.live().reassignment if now else None)
        ids = {name: row for name, row in metadata.topic_ids.items() if name not in hidden}
        live = ((key, row.live().reassignment) for key, row in self.cluster.placement.partitions() if row.reassigning)
        listed = {key: moving for key, moving in live if moving is not None}
        return LiveCluster(self.cluster.placement.cluster_id, metadata.broker_racks, partitions, ids, listed)

    def _current_metadata(self) -> _Metadata:
        """Metadata of the broker that is asked: as it is now, or as it was before, as old as the lag at most."""
        contents, lag_ms = self.cluster.placement, self.faults.metadata_lag_ms
        seen = self._metadata
        if seen is None or not lag_ms or contents.now_ms - seen.at_ms > lag_ms:
            if seen is not None and seen.changes == contents.changes:
                seen.at_ms = contents.now_ms
                return seen
            racks = {row.broker_id: row.rack for _, row in sorted(contents.brokers.items()) if not row.fenced}
            shown = {key: partition.live() for key, partition in contents.partitions()}
            ids = {name: topic.topic_id for name, topic in contents.topics.items()}
            seen = self._metadata = _Metadata(contents.now_ms, contents.changes, racks, shown, ids)
        return seen

    def _alive(self) -> list[int]:
        return sorted(self._current_metadata().broker_racks)

    def _answering(self, brokers: Collection[int] | None) -> list[int]:
        """Of these brokers in metadata (of all where None) those that answer; raises where none of all does."""
        alive, known = self._alive(), self.cluster.placement.brokers
        answering = [row for row in alive if known[row].running and (brokers is None or row in brokers)]
        if brokers is None and alive and not answering:
            raise self._errors.unanswered("no broker answers")
        return answering

    def _log_dirs(
        self, brokers: Collection[int] | None, partitions: Collection[PartitionKey] | None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        answering = self._answering(brokers)
        return described(self.cluster.contents, answering, partitions)

    def _reassigned(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> dict[PartitionKey, str | None]:
        allowed = {key: target for key, target in targets.items() if key not in self.faults.refused}
        refused = {key: self.faults.refused[key] for key in targets.keys() - allowed.keys()}
        return self.cluster.reassign(allowed) | refused

    def _elected(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, str | None]:
        refused = {key: self.faults.elections_refused[key] for key in keys if key in self.faults.elections_refused}
        return self.cluster.elect_preferred([key for key in keys if key not in refused]) | refused

    def _refusal(
        self,
        request: str,
        refused: Mapping[PartitionKey, str | None],
        made: Callable[[Mapping[PartitionKey, str]], Exception] | None,
    ) -> Exception:
        """Errors by partition as the client's owner wants them."""
        errors = {key: error for key, error in refused.items() if error is not None}
        if made is not None:
            return made(errors)
        (topic, partition), error = min(errors.items())
        return self._errors.refused(f"{many(len(errors), request)} refused, first {topic}-{partition}: {error}")

    def _rates(self, brokers: Collection[int] | None) -> dict[int, dict[str, int]]:
        asked = [broker_id for broker_id in self._alive() if brokers is None or broker_id in brokers]
        for broker_id in asked:
            self._need_answer_of(broker_id)
        rates = self.cluster.placement.throttle_rates
        return {broker_id: dict(rates[broker_id]) for broker_id in asked if rates.get(broker_id)}

    def _lists(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        existing = {name: row for name in topics if (row := self.cluster.placement.topics.get(name))}
        for row in existing.values():
            hear(row, self.cluster.now_ms)
        return {
            (name, setting): row.heard_replicas[setting]
            for name, row in existing.items()
            for setting in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
            if setting in row.heard_replicas
        }

    def _add_to_lists(self, sides: Sides) -> None:
        """Topic after topic: one that refuses a part takes nothing, and the others take theirs all the same."""
        refused: dict[str, str] = {}
        for topic, changes in self._changes(sides):
            row = self.cluster.placement.topics[topic]
            found = (append_error(row, *change, self.cluster.placement.release) for change in changes)
            errors = [error for error in found if error is not None]
            if CONNECTION_CLOSED in errors:
                raise self._errors.unanswered(f"connection closed: the entries for topic {topic} are too long")
            if errors:
                refused[topic] = errors[0]
            for setting, entries in () if errors else changes:
                self.cluster.append_throttled_replicas(topic, setting, entries)
        if refused:
            name, error = min(refused.items())
            raise self._errors.refused(f"throttled replicas of topic {name} can't be changed: {error}")

    def _take_from_lists(self, sides: Sides) -> None:
        """A list that is `*` stays: it holds no entry."""
        for topic, changes in self._changes(sides):
            for setting, entries in changes:
                if self.cluster.subtract_throttled_replicas(topic, setting, entries) is not None:
                    raise self._errors.unanswered(f"connection closed: the entries for topic {topic} are too long")

    def _changes(self, sides: Sides) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Topics that exist, each with what is to change: settings and the text of their entries."""
        settings = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        for topic in sorted((sides[0].keys() | sides[1].keys()) & self.cluster.placement.topics.keys()):
            named = ((setting, side.get(topic)) for setting, side in zip(settings, sides, strict=True))
            yield topic, [(setting, entries_text(replicas)) for setting, replicas in named if replicas]

    def _but_foreign(
        self, rates: Mapping[int, int | None], *, untagged: bool = False
    ) -> dict[int, dict[str, int | None]]:
        """What to set by broker and setting (None removes), without the rates that somebody else has set by now."""
        shown = self.cluster.placement.throttle_rates
        return {
            broker: {
                row: rate for row in REPLICATION_RATES if untagged or not is_foreign(shown.get(broker, {}).get(row))
            }
            for broker, rate in rates.items()
        }

    def _change_rates(self, changes: Mapping[int, Mapping[str, int | None]]) -> None:
        """Broker after broker: those before one that doesn't answer are changed, and all that don't refuse."""
        alive = self._alive()
        refused = {}
        for broker_id in sorted(changes.keys() & set(alive)):
            self._need_answer_of(broker_id)
            if changes[broker_id] and broker_id in self.faults.throttles_refused:
                refused[broker_id] = self.faults.throttles_refused[broker_id]
                continue
            for setting, rate in changes[broker_id].items():
                self.cluster.set_throttle_rate(broker_id, setting, rate)
        if refused:
            broker_id, error = min(refused.items())
            raise self._errors.refused(f"throttle of broker {broker_id} can't be changed: {error}")

    def _clear(
        self,
        changes: Mapping[int, Mapping[str, int | None]],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
    ) -> list[int]:
        self._change_rates(changes)
        for sides in pieces(leaders, followers):
            self._take_from_lists(sides)
        return sorted(set(changes) - set(self._alive()))


def _marker_key(marker: Marker) -> tuple[str, str, str, int]:
    return (*marker.identity, marker.owner, marker.since_ms)
