"""Log dirs of a simulated cluster as a client sees and changes them: movements within brokers, their rates, cordons."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from assignor_core.disks import FutureReplica, LogDirDescription
from assignor_core.live import PartitionKey, ReplicaKey, replica_name
from assignor_core.throttles import is_foreign
from assignor_core.wording import many
from tests.simulated_cluster import log_dir_moves, replication
from tests.simulated_cluster.faults import RequestKind
from tests.simulated_cluster.requests import RequestSender
from tests.simulated_cluster.state import CORDONS_SHOWN, ClusterContents, LogDir

PATH_PREFIX = "/disk-"


def path_of(index: int) -> str:
    """The path of a broker's log dir."""
    return f"{PATH_PREFIX}{index}"


def described(
    contents: ClusterContents, brokers: Iterable[int], partitions: Collection[PartitionKey] | None
) -> dict[int, tuple[LogDirDescription, ...]]:
    """Log dirs of these brokers, with the replicas of these partitions (of all where None)."""
    used_bytes = replication.used_bytes(contents)
    wanted = None if partitions is None else frozenset(partitions)
    held: dict[tuple[int, int], dict[PartitionKey, int]] = defaultdict(dict)
    futures: dict[tuple[int, int], dict[PartitionKey, FutureReplica]] = defaultdict(dict)
    for key, partition in contents.partitions():
        if wanted is None or key in wanted:
            for broker_id, copy in partition.copies.items():
                held[broker_id, copy.log_dir][key] = partition.size_bytes(broker_id)
                if copy.future is not None:
                    size = max(0, copy.future.end_bytes - partition.start_bytes)
                    lag = copy.end_bytes - copy.future.end_bytes
                    futures[broker_id, copy.future.log_dir][key] = FutureReplica(size, lag)
    return {
        broker_id: tuple(
            _described(
                index,
                log_dir,
                used_bytes[broker_id, index],
                held[broker_id, index],
                futures[broker_id, index],
                shows_cordons=contents.release >= CORDONS_SHOWN,
            )
            for index, log_dir in enumerate(contents.brokers[broker_id].log_dirs)
        )
        for broker_id in brokers
    }


def _described(
    index: int,
    log_dir: LogDir,
    used_bytes: int,
    held: Mapping[PartitionKey, int],
    futures: Mapping[PartitionKey, FutureReplica],
    *,
    shows_cordons: bool,
) -> LogDirDescription:
    """Of a log dir that is offline Kafka shows the path and the error, and nothing else."""
    if log_dir.offline:
        return LogDirDescription(path_of(index), is_offline=True)
    return LogDirDescription(
        path_of(index),
        log_dir.size_bytes,
        max(0, log_dir.size_bytes - used_bytes),
        held,
        is_cordoned=log_dir.cordoned if shows_cordons else None,
        future_replicas=futures,
    )


class LogDirClient(RequestSender):
    """Movements within brokers, their throttle, and cordons."""

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        """Ask brokers to move replicas to these log dirs; raises after those that are not refused were begun."""
        self._before_change()
        answers = self._send(RequestKind.MOVE_WITHIN_BROKERS, lambda: self._moved_within(targets))
        refused = {replica: error for replica, error in answers.items() if error is not None}
        if not refused:
            return
        if self._errors.log_dir_moves_refused is not None:
            raise self._errors.log_dir_moves_refused(refused)
        replica, error = min(refused.items())
        message = f"{many(len(refused), 'movement')} within brokers refused, first {replica_name(replica)}: {error}"
        raise self._errors.refused(message)

    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        """Rates of movements within brokers that are set, bytes/s, of these brokers in metadata (of all where None)."""
        return self._send(RequestKind.READ_THROTTLES, lambda: self._log_dir_rates(brokers))

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set the rate of movements within brokers that are in metadata; a rate that somebody else has set stays."""
        self._before_change()
        foreign = self._with_foreign_rate()
        self._send(RequestKind.CHANGE_THROTTLES, lambda: self._change_log_dir_rates(rates_bytes_per_sec, foreign))

    def clear_log_dir_rates(self, brokers: Collection[int], *, untagged: bool = False) -> list[int]:
        """Remove rates, those of others only if `untagged`; returns the brokers that are down and therefore keep
        theirs.
        """
        self._before_change()
        kept = frozenset() if untagged else self._with_foreign_rate()
        self._send(RequestKind.CHANGE_THROTTLES, lambda: self._change_log_dir_rates(dict.fromkeys(brokers), kept))
        return sorted(set(brokers) - set(self._alive()))

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        """Let log dirs take no new replicas, or take them again."""
        self._before_change()
        self._send(RequestKind.CORDON, lambda: self._cordon(broker_id, paths, cordoned))

    def _moved_within(self, targets: Mapping[ReplicaKey, str]) -> dict[ReplicaKey, str | None]:
        """Broker after broker; raises in the end where one of them does not answer."""
        answers: dict[ReplicaKey, str | None] = {}
        silent = []
        for (broker_id, key), path in sorted(targets.items()):
            if broker_id in self._alive() and self.cluster.placement.brokers[broker_id].running:
                index, refused = self._index_of(broker_id, path), self.faults.within_refused.get((broker_id, key))
                answers[broker_id, key] = refused or log_dir_moves.move_to_log_dir(
                    self.cluster.contents, broker_id, key, index
                )
            else:
                silent.append(broker_id)
        if silent:
            raise self._errors.unanswered(f"no answer of broker {silent[0]}")
        return answers

    def _index_of(self, broker_id: int, path: str) -> int | None:
        """Of the log dir with this path; None where the broker has none."""
        paths = [path_of(index) for index, _ in enumerate(self.cluster.placement.brokers[broker_id].log_dirs)]
        return paths.index(path) if path in paths else None

    def _log_dir_rates(self, brokers: Collection[int] | None) -> dict[int, int]:
        asked = [broker_id for broker_id in self._alive() if brokers is None or broker_id in brokers]
        for broker_id in asked:
            self._need_answer_of(broker_id)
        rates = self.cluster.placement.log_dir_rates
        return {broker_id: rates[broker_id] for broker_id in asked if broker_id in rates}

    def _with_foreign_rate(self) -> frozenset[int]:
        rates = self.cluster.placement.log_dir_rates
        return frozenset(broker for broker, rate in rates.items() if is_foreign(rate))

    def _change_log_dir_rates(self, rates: Mapping[int, int | None], kept: Collection[int]) -> None:
        """Broker after broker: those before one that doesn't answer are changed. The rates of `kept` ones stay."""
        for broker_id in sorted(rates.keys() & set(self._alive())):
            self._need_answer_of(broker_id)
            if broker_id in kept:
                continue
            if broker_id in self.faults.throttles_refused:
                error = self.faults.throttles_refused[broker_id]
                raise self._errors.refused(f"throttle of broker {broker_id} can't be changed: {error}")
            self.cluster.set_log_dir_rate(broker_id, rates[broker_id])

    def _cordon(self, broker_id: int, paths: Collection[str], cordoned: bool) -> None:
        """What is not in the list of cordons can be taken out of it; what is no log dir can't be put into it."""
        self._need_answer_of(broker_id)
        indexes = {path: self._index_of(broker_id, path) for path in sorted(paths)}
        unknown = [path for path, index in indexes.items() if index is None]
        if unknown and cordoned:
            raise self._errors.refused(f"broker {broker_id} has no log dir {unknown[0]}")
        for index in indexes.values():
            if index is not None:
                self.cluster.contents.brokers[broker_id].log_dirs[index].cordoned = cordoned
