"""The errors of the shell, split by what the caller can do about them.

    RebalancerError                 anything this package raises on purpose; exit code 1
      UsageProblem                  fix the input (option, setting, file): nothing was changed; exit code 2
        SettingsRefused             some settings are wrong; a line for each
      RefusedForSafety              carrying on could do harm; exit code 3
        LeaseLost                   another process has the right to act now
        AnotherControl              the control of other tables changes the cluster now
        AnotherCluster              the brokers are not those of the cluster that is meant
      RollStopped                   a roll of brokers waits too long, or its command failed: it stays open
      LeaseExpired                  the right to act could not be renewed in time: retry later
      SnapshotTooOld                the snapshot that a request rests on is too old: take a new one, then retry
      ClusterUnreachable            retry later: no broker answered in time
      ClusterRequestFailed          the cluster answered and refused
        PartitionsRefused           some partitions of a request; the others were carried out
          ReassignmentsRefused
          ElectionsRefused
        LogDirMovesRefused          some movements within brokers; the others were begun
      TableUnavailable              a Delta table is missing, unreadable or not writable
      SetUpIncomplete               a part of the installation is missing or broken (Java, jars)

Messages are one line and name the thing, the value found and the value allowed. Only `streaming.cli` turns them
into exit codes.
"""

from collections.abc import Mapping, Sequence

from assignor_core.wording import many

BEGIN_ANEW = -1
"""What a role returns in place of an exit code that is to begin anew in its process, with other settings."""


class RebalancerError(Exception):
    """Root of the tree; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageProblem(RebalancerError):
    """Wrong use or bad input; nothing was changed."""

    exit_code = 2


class SettingsRefused(UsageProblem):
    """Settings that don't hold together or are not known; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class RefusedForSafety(RebalancerError):
    """The request was understood and refused because it could do harm."""

    exit_code = 3


class LeaseLost(RefusedForSafety):
    """Another process has taken over; this one must not change the cluster any more."""


class AnotherControl(RefusedForSafety):
    """The control of other tables changes the cluster; the message names its process and lease."""


class AnotherCluster(RefusedForSafety):
    """Another Kafka cluster answers behind the address; the message names both ids. Nothing of it was changed."""


class RollStopped(RebalancerError):
    """A roll of brokers can't go on: a step has waited for too long, or its command failed. The roll stays open."""


class LeaseExpired(RebalancerError):
    """The lease ran out and waits to be renewed; nothing may be changed until then."""


class SnapshotTooOld(RebalancerError):
    """The snapshot of the cluster that a request rests on is too old; nothing was sent."""


class ClusterUnreachable(RebalancerError):
    """No broker answered in time."""


class ClusterRequestFailed(RebalancerError):
    """The cluster answered, and refused the request. `kafka_error` is the name of Kafka's error, if that is known."""

    def __init__(self, message: str, *, kafka_error: str | None = None) -> None:
        super().__init__(message)
        self.kafka_error = kafka_error


class PartitionsRefused(ClusterRequestFailed):
    """The cluster refused some partitions of a request and carries out the others.

    `refusals` holds the name of Kafka's error by (topic, partition); there is at least one.
    """

    request = "request"

    def __init__(self, refusals: Mapping[tuple[str, int], str]) -> None:
        (topic, partition), error = min(refusals.items())
        super().__init__(f"{many(len(refusals), self.request)} refused, first {topic}-{partition}: {error}")
        self.refusals = dict(refusals)


class ReassignmentsRefused(PartitionsRefused):
    """Reassignments, or cancellations of them, that the cluster refused."""

    request = "reassignment"


class ElectionsRefused(PartitionsRefused):
    """Elections of preferred leaders that the cluster refused."""

    request = "election"


class LogDirMovesRefused(ClusterRequestFailed):
    """Brokers refused to move some replicas to another log dir, and move the others.

    `refusals` holds the name of Kafka's error by (broker, (topic, partition)); there is at least one.
    """

    def __init__(self, refusals: Mapping[tuple[int, tuple[str, int]], str]) -> None:
        (broker, (topic, partition)), error = min(refusals.items())
        first = f"{topic}-{partition} on broker {broker}: {error}"
        movements = many(len(refusals), "movement")
        super().__init__(f"{movements} within brokers refused, first {first}", kafka_error=error)
        self.refusals = dict(refusals)


class TableUnavailable(RebalancerError):
    """A Delta table is missing, unreadable or not writable."""


class SetUpIncomplete(RebalancerError):
    """Java or a jar is missing or broken."""
