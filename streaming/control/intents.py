"""Writes down what people want of brokers, in `broker_intent`: which are being drained, until a person wants otherwise.

A drained broker is alive and empty: without this note the trigger would see skew and the planner would fill it again.
"""

from streaming import tables
from streaming.errors import TableUnavailable
from streaming.tables import TableReader
from streaming.views.intents import Intent, newest_intents

TABLE = "broker_intent"
TRIES_MAX = 5
"""So often a row is written anew because somebody else wrote one for the same broker meanwhile."""


def note_intent(root: str, kafka_cluster: str, broker: int, intent: Intent, by: str, *, now_ms: int) -> None:
    """Note what `by` wants `broker` to be for from now on.

    Raises TableUnavailable if the table does not hold it afterwards.

    The newest row of a broker counts, and clocks of people's machines differ. So a row is always later than the newest
    one that is there, and the time is the version of its transaction: of two rows with one time only one is written.
    """
    for _ in range(TRIES_MAX):
        newest = newest_intents(TableReader(root), kafka_cluster).get(broker)
        later_ms = now_ms if newest is None else max(now_ms, tables.to_ms(newest["event_time"]) + 1)
        row = {
            "kafka_cluster": kafka_cluster,
            "broker": broker,
            "event_time": tables.utc(later_ms),
            "intent": intent.value,
            "by": by,
        }
        transaction_id = f"intent:{kafka_cluster}:{broker}"
        tables.append(root, TABLE, [row], transaction_id=transaction_id, transaction_version=later_ms)
        kept = newest_intents(TableReader(root), kafka_cluster).get(broker)
        if kept is not None and kept["intent"] == intent.value:
            return
    raise TableUnavailable(f"table {TABLE}: broker {broker} is not noted for {intent.value}, others write it too")
