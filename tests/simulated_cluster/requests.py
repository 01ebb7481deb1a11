"""How a client of a simulated cluster sends a request: the faults that may strike it, and the checks before a change.

Who holds a client to the ports of the shell passes the errors that a real client raises.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from assignor_core.identity import cluster_mismatch
from assignor_core.live import PartitionKey, ReplicaKey
from tests.simulated_cluster.cluster import SimulatedCluster
from tests.simulated_cluster.faults import ClientFaults, Fate, RequestKind

Answer = TypeVar("Answer")


class SimulatedRefusal(Exception):
    """The cluster refuses a request, or a part of it; the message names the first part."""


class SimulatedSilence(Exception):
    """The cluster doesn't answer a request; it may have been carried out all the same."""


@dataclass(frozen=True, slots=True)
class ClientErrors:
    """Exception types that a client raises: a request that was refused, a request without an answer."""

    refused: type[Exception] = SimulatedRefusal
    unanswered: type[Exception] = SimulatedSilence
    reassignments_refused: Callable[[Mapping[PartitionKey, str]], Exception] | None = None
    """Of errors by partition; without it `refused` is raised, with the same message."""
    elections_refused: Callable[[Mapping[PartitionKey, str]], Exception] | None = None
    """The same of elections."""
    another_cluster: type[Exception] = SimulatedRefusal
    """The brokers are not those of the cluster that the client was made for."""
    log_dir_moves_refused: Callable[[Mapping[ReplicaKey, str]], Exception] | None = None
    """Of errors by replica, of movements within brokers."""


class RequestSender:
    """Sends the requests of one client.

    `may_act` is asked right before each change and raises where its owner must not make it. With `kafka_cluster_id`,
    each look and each change raises where the cluster has another id.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        errors: ClientErrors = ClientErrors(),
        may_act: Callable[[], None] = lambda: None,
        kafka_cluster_id: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.faults = ClientFaults()
        self._errors = errors
        self._may_act = may_act
        self._kafka_cluster_id = kafka_cluster_id

    def _send(self, request: RequestKind, action: Callable[[], Answer], *, of_controller: bool = False) -> Answer:
        """Carry out a request unless a fault strikes it."""
        fault = self.faults.take(request)
        away = of_controller and self.cluster.now_ms < self.faults.controller_away_until_ms
        if away or not any(broker.running for broker in self.cluster.placement.brokers.values()):
            raise self._errors.unanswered(f"no answer to {request.value}")
        if fault is not None:
            if fault.fate is Fate.LATE:
                self.cluster.plan(fault.delay_ms, lambda: self._carry_out_late(action))
            elif fault.fate is Fate.ANSWER_LOST:
                action()
            raise self._errors.unanswered(f"no answer to {request.value}")
        return action()

    def _carry_out_late(self, action: Callable[[], object]) -> None:
        """Nobody waits for the answer any more."""
        with suppress(self._errors.unanswered, self._errors.refused):
            action()

    def _before_change(self) -> None:
        self._check_cluster()
        self._may_act()

    def _check_cluster(self) -> None:
        other = cluster_mismatch(self._kafka_cluster_id, self.cluster.placement.cluster_id)
        if other is not None:
            raise self._errors.another_cluster(other)

    def _alive(self) -> list[int]:
        """Brokers in metadata, lowest id first."""
        raise NotImplementedError

    def _need_answer_of(self, broker_id: int) -> None:
        """Requests to a certain broker fail while metadata shows it and it doesn't answer."""
        if not self.cluster.placement.brokers[broker_id].running:
            raise self._errors.unanswered(f"no answer of broker {broker_id}")
