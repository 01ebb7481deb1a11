"""Writes down what people want of brokers, in `broker_intent`: drained or demoted, until a person wants otherwise.

A drained broker is alive and empty: without this note the trigger would see skew and the planner would fill it again.
The note also says which log dirs are ours to cordon, before they are cordoned; `cordons` carries that out.
"""

import json
from collections.abc import Collection, Iterable

from streaming import tables
from streaming.errors import TableUnavailable
from streaming.tables import Row, TableReader
from streaming.views.intents import Intent, cordons_of, demotions_of, newest_intents

TABLE = "broker_intent"
TRIES_MAX = 5
"""How often control writes a row again because somebody else wrote one for the same broker meanwhile."""


def note_intent(
    root: str,
    kafka_cluster: str,
    broker: int,
    intent: Intent,
    by: str,
    *,
    now_ms: int,
    cordons: Iterable[str] = (),
    demotions: Iterable[str] | None = None,
) -> None:
    """Note what `by` wants `broker` to be for from now on. `cordons` are log dirs that a drain is to cordon, besides
    those that are ours by the newest row. `demotions` are the plans that hold the order of before; None keeps those of
    the newest row, as does a demotion of a broker that is demoted. Raises TableUnavailable if the table does not hold
    it afterwards.

    The newest row of a broker counts, and clocks of people's machines differ. So a row is always later than the newest
    one that is there, and the time is the version of its transaction: of two rows with one time only one is written.
    """
    for _ in range(TRIES_MAX):
        newest = newest_intents(TableReader(root), kafka_cluster).get(broker)
        later_ms = now_ms if newest is None else max(now_ms, tables.to_ms(newest["event_time"]) + 1)
        is_again = intent is Intent.DEMOTE and newest is not None and newest["intent"] == Intent.DEMOTE
        before = demotions_of(newest) if demotions is None or is_again else ()
        plans = tuple(dict.fromkeys((*before, *(demotions or ()))))
        ours = cordons_of(newest).union(cordons)
        _append(root, kafka_cluster, broker, intent, by, ours, plans, at_ms=later_ms)
        kept = newest_intents(TableReader(root), kafka_cluster).get(broker)
        if kept is not None and kept["intent"] == intent.value:
            return
    raise TableUnavailable(
        f"table {TABLE}: broker {broker} is not noted for {intent.value}, others write its intent, too: "
        "run the command again"
    )


def note_restored(root: str, kafka_cluster: str, broker: int, demotions: Collection[str]) -> None:
    """Note that the order of before these plans is back, unless somebody has noted otherwise since the broker was to be
    used: an undemotion takes a while. Raises TableUnavailable.
    """
    for _ in range(TRIES_MAX):
        row = newest_intents(TableReader(root), kafka_cluster).get(broker)
        if row is None or row["intent"] != Intent.USE or set(demotions_of(row)) != set(demotions) or not demotions:
            return
        if _append_behind(root, kafka_cluster, row, cordons_of(row), ()):
            return
    raise TableUnavailable(
        f"table {TABLE}: the end of the demotion of broker {broker} is not noted, others write it too"
    )


def note_uncordoned(root: str, kafka_cluster: str, row: Row) -> None:
    """Note that no log dir is ours any more, as `row` wanted; raises TableUnavailable.

    Written right behind the row, this is older than what anybody has noted since.
    """
    _append_behind(root, kafka_cluster, row, (), demotions_of(row))


def note_own_log_dir(root: str, kafka_cluster: str, broker: int, path: str) -> None:
    """Note that a person decides on the cordon of this log dir alone: a drain of its broker neither sets nor removes it
    from now on. Raises TableUnavailable.
    """
    for _ in range(TRIES_MAX):
        row = newest_intents(TableReader(root), kafka_cluster).get(broker)
        ours = cordons_of(row)
        if row is None or path not in ours:
            return
        if _append_behind(root, kafka_cluster, row, ours - {path}, demotions_of(row)):
            return
    raise TableUnavailable(f"table {TABLE}: {path} of broker {broker} is not noted, others write it too")


def _append_behind(
    root: str, kafka_cluster: str, row: Row, cordons: Collection[str], demotions: Collection[str]
) -> bool:
    """Write the row again with these cordons and demotions, right behind it: False if anybody has written since."""
    at_ms, intent = tables.to_ms(row["event_time"]) + 1, Intent(row["intent"])
    return _append(root, kafka_cluster, row["broker"], intent, row["by"], cordons, demotions, at_ms=at_ms)


def _append(
    root: str,
    kafka_cluster: str,
    broker: int,
    intent: Intent,
    by: str,
    cordons: Collection[str],
    demotions: Collection[str],
    *,
    at_ms: int,
) -> bool:
    row = {
        "kafka_cluster": kafka_cluster,
        "broker": broker,
        "event_time": tables.utc(at_ms),
        "intent": intent.value,
        "by": by,
        "cordons_json": json.dumps(sorted(cordons)) if cordons else None,
        "demotions_json": json.dumps(list(demotions)) if demotions else None,
    }
    return tables.append(
        root, TABLE, [row], transaction_id=f"intent:{kafka_cluster}:{broker}", transaction_version=at_ms
    )
