"""A cluster for whoever only looks and plans: what the user has no right to see is unknown, and no error.

Never for an execution: that must know which reassignments are under way, and what log dirs hold.
"""

from collections.abc import Collection
from typing import Any

import structlog
from kafka.errors import ClusterAuthorizationFailedError

from assignor_core.disks import LogDirDescription
from assignor_core.live import PartitionKey
from streaming.cluster.admin import Cluster
from streaming.errors import ClusterRequestFailed

log = structlog.get_logger()


class PartlyShownCluster(Cluster):
    """Reassignments that may not be listed are `reassignments_hidden`; a broker that refuses log dirs shows none."""

    def __init__(self, *arguments: Any, logs: bool = False, **options: Any) -> None:
        """Takes the arguments of `Cluster`. A role `logs` what is refused; a command shows it in its answer, maybe
        JSON.
        """
        super().__init__(*arguments, **options)
        self._logs = logs
        self._refused: set[str] = set()

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Returns log dirs as `Cluster` does; none of brokers that refuse for want of a right."""
        try:
            shown = super().log_dirs(brokers, partitions)
        except ClusterRequestFailed as error:
            if error.kafka_error != ClusterAuthorizationFailedError.__name__:
                raise
            self._note_refusal("describe log dirs", "sizes of logs, room on disks: replicas stay where they are")
            return {broker: () for broker in self._alive() if brokers is None or broker in brokers}
        self._note_answer("describe log dirs")
        return shown

    def _reassignments(self) -> Any:
        try:
            moving = super()._reassignments()
        except ClusterAuthorizationFailedError:
            self._note_refusal("list reassignments", "whether partitions are being reassigned")
            return None
        self._note_answer("list reassignments")
        return moving

    def _note_refusal(self, request: str, unknown: str) -> None:
        if request not in self._refused:
            self._refused.add(request)
            if self._logs:
                log.warning("request_refused", request=request, needs="DESCRIBE on the cluster", unknown=unknown)

    def _note_answer(self, request: str) -> None:
        if request in self._refused:
            self._refused.remove(request)
            if self._logs:
                log.info("request_allowed", request=request)
