"""What plans promised against what came, from the tables `plan` and `execution`: for `status` and for predictions."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from assignor_core.execution.accuracy import EXECUTIONS_MIN, Accuracy, accuracy_of, compared
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from streaming.tables import TableReader, one_of
from streaming.views.executions import COLUMNS, TABLE, folded, newest_measured
from streaming.views.plans import plan_durations_ms

PLANS_MAX = 12
"""Newest plans that are compared: each is read whole."""


def read_accuracy(reader: TableReader, kafka_cluster: str) -> Accuracy:
    """Errors of the newest plans that were carried out and measured; raises TableUnavailable."""
    return _accuracy(reader, kafka_cluster, newest_measured(reader, kafka_cluster, PLANS_MAX))


class AccuracyReader:
    """Reads them again and again, for serve: plans are read only where another one was measured."""

    def __init__(self, reader: TableReader, kafka_cluster: str) -> None:
        self._reader = reader
        self._kafka_cluster = kafka_cluster
        self._version: int | None = None
        self._ids: list[str] = []
        self._known = Accuracy()

    def read(self) -> Accuracy:
        """Returns the accuracy of the newest plans as the tables are now; raises TableUnavailable."""
        version = self._reader.version(TABLE)
        if version != self._version:
            ids = newest_measured(self._reader, self._kafka_cluster, PLANS_MAX)
            if ids != self._ids:
                self._known = _accuracy(self._reader, self._kafka_cluster, ids)
            self._version, self._ids = version, ids
        return self._known


def accuracy_beside_plan(settings: Settings) -> dict[str, Any] | None:
    """The accuracy as data, to show beside a plan that is made already; None where the tables don't show it now."""
    with suppress(TableUnavailable):
        return asdict(read_accuracy(TableReader(settings.storage.tables), settings.kafka.cluster_name))
    return None


def _accuracy(reader: TableReader, kafka_cluster: str, ids: list[str]) -> Accuracy:
    if len(ids) < EXECUTIONS_MIN:
        return Accuracy()
    executions = folded(reader.rows(TABLE, columns=COLUMNS, where=one_of("execution_id", ids)))
    durations = plan_durations_ms(reader, kafka_cluster, {row.plan_id for row in executions})
    rows = (compared(row, durations.get(row.plan_id)) for row in executions)
    return accuracy_of(row for row in rows if row is not None)
