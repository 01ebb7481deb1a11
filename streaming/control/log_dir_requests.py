"""What an execution asks brokers to move between their log dirs, or to give up, and what keeps it from doing so."""

from collections.abc import Callable, Collection, Mapping

from assignor_core.execution.within_brokers import Hindered
from assignor_core.live import ReplicaKey
from streaming.cluster.ports import LogDirChanger
from streaming.control.look_age import LookAge
from streaming.control.requests import CANCEL_TRIES_MAX
from streaming.errors import ClusterRequestFailed, LogDirMovesRefused


class LogDirRequests:
    """Requests of one execution within brokers, each based on log dirs just read; `forget` starts another one."""

    def __init__(self, cluster: LogDirChanger, look_age: LookAge) -> None:
        self._cluster = cluster
        self._look_age = look_age
        self.forget()

    def forget(self) -> None:
        """Forgets the execution so far: from now on the requests are those of another execution, and nothing hinders
        it.
        """
        self._hindered = Hindered()
        # Apart: there may be room for what its broker refuses, and a look that shows room must not forget the refusals.
        self._refusals = Hindered()
        self._cancel_tries = 0
        self.cancelled: frozenset[ReplicaKey] = frozenset()
        self.asked_to_stay: frozenset[ReplicaKey] = frozenset()

    @property
    def given_up(self) -> Mapping[ReplicaKey, str]:
        """Movements that are skipped, with the reason."""
        return {**self._hindered.given_up, **self._refusals.given_up}

    def hinder(self, tried: Collection[ReplicaKey], reasons: Mapping[ReplicaKey, str], now_ms: int) -> None:
        """Notes the movements among `tried` that can't be begun now: there is no room, or their broker is at work."""
        self._hindered = self._hindered.after(tried, reasons, now_ms)

    def move(self, targets: Mapping[ReplicaKey, str], now_ms: int) -> Mapping[ReplicaKey, str]:
        """Ask for movements; returns the replicas that brokers refused, with Kafka's error."""
        refused = self._refused(targets)
        self._refusals = self._refusals.after(targets.keys(), refused, now_ms)
        return refused

    def stop(self, places: Mapping[ReplicaKey, str], now_ms: int) -> Mapping[ReplicaKey, str]:
        """Let brokers give up copies while the execution goes on; see `cancel` and `move`."""
        self.asked_to_stay |= frozenset(places)
        return self.move(places, now_ms)

    @property
    def may_cancel(self) -> bool:
        """Whether giving up what brokers don't give up is still to be tried again."""
        return self._cancel_tries < CANCEL_TRIES_MAX

    def cancel(self, places: Mapping[ReplicaKey, str], hidden: Collection[ReplicaKey]) -> Mapping[ReplicaKey, str]:
        """Let brokers give up copies, where `places` are the log dirs that the replicas lie in; returns what goes on,
        with the reason. Of replicas that are `hidden` nobody knows whether they are being copied.
        """
        self.asked_to_stay |= frozenset(places)
        refused = dict(self._refused(places)) | dict.fromkeys(hidden, "not shown by its broker")
        self.cancelled |= frozenset(places) - refused.keys()
        self._cancel_tries += bool(places or hidden)
        return refused

    def _refused(self, targets: Mapping[ReplicaKey, str]) -> Mapping[ReplicaKey, str]:
        return _refusals(targets, lambda: self._cluster.move_to_log_dirs(targets), self._look_age)


def _refusals(
    targets: Mapping[ReplicaKey, str], request: Callable[[], None], look_age: LookAge
) -> Mapping[ReplicaKey, str]:
    """Kafka's error by replica; a request that is refused as a whole is refused for each replica."""
    if not targets:
        return {}
    try:
        with look_age.limited():
            request()
    except LogDirMovesRefused as error:
        return error.refusals
    except ClusterRequestFailed as error:
        return dict.fromkeys(targets, error.kafka_error or str(error))
    return {}
