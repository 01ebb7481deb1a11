"""Checks of samples: whether the input topics are there, and whether one collector reports each broker.

Both know what is not there yet before the first run.
"""

from collections.abc import Collection

from assignor_core.wording import counted
from streaming.collect.shards import Shard
from streaming.commands.broker_names import broker_names
from streaming.settings import CollectSettings, Settings
from streaming.tables import TableReader
from streaming.views.broker_load import LoadPart, read_load

OLD_WINDOWS = 5
"""A window that ended longer ago shows how it was: no collector or pipeline runs."""


def input_topics(existing: Collection[str], settings: Settings) -> tuple[bool, str]:
    """Whether the topics that the pipeline reads are among the `existing` ones.

    Our own may be missing until a first window has closed: the collector makes them at its start.
    """
    own = [name for name in (settings.topics.byte_rate, settings.topics.consumer_lag) if name not in existing]
    foreign = [f"{name} (of topics.foreign)" for name in sorted(settings.topics.foreign) if name not in existing]
    if own and not foreign and read_load(TableReader(settings.storage.tables), settings).window_end_ms is None:
        return True, f"not there yet: {', '.join(own)} (`rebalancer collect` makes them)"
    missing = [*(f"{name} (`rebalancer collect` makes it)" for name in own), *foreign]
    return not missing, f"missing: {', '.join(missing)}" if missing else "all there"


def reports(brokers: Collection[int], settings: Settings, *, now_ms: int) -> tuple[bool, str]:
    """Whether the newest closed window has each of the brokers that are alive, and each from one collector."""
    load = read_load(TableReader(settings.storage.tables), settings)
    if load.window_start_ms is None or load.window_end_ms is None:
        return True, "no window of load has closed yet"
    age_ms = now_ms - load.window_end_ms
    if age_ms > OLD_WINDOWS * settings.pipeline.window_ms + settings.pipeline.watermark_ms:
        return True, f"nothing to compare: the newest window ended {age_ms / 1000:,.0f} s ago"
    twice = load.brokers_reported_twice
    if twice:
        return False, f"more than one collector reports {broker_names(twice)}: collect.shard must differ"
    silent = sorted(set(brokers) - _reported(load))
    if silent:
        not_taken = _shards_not_taken(brokers, silent, settings.collect)
        return False, f"no collector reports {broker_names(silent)}{not_taken}"
    return True, f"one collector reports each of {counted(len(brokers), 'broker', 'brokers')}"


def _reported(load: LoadPart) -> set[int]:
    assert load.window_start_ms is not None
    return {row.broker for row in load.brokers if row.last_sample_ms >= load.window_start_ms}


def _shards_not_taken(brokers: Collection[int], silent: Collection[int], collect: CollectSettings) -> str:
    """Shards all of whose brokers are silent, in words; nothing where one collector is to report all."""
    count = Shard.of(collect.shard).count
    shards = [Shard(number, count) for number in range(1, count + 1)]
    members = {shard: {broker for broker in brokers if shard.takes_broker(broker)} for shard in shards}
    idle = [str(shard) for shard, own in members.items() if own and own <= set(silent)]
    return f": does a collector run with collect.shard {' and '.join(idle)}?" if count > 1 and idle else ""
