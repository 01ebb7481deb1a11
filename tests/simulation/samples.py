"""Stories of doubtful samples in mode `apply`: a broker that sends none, or records that somebody has forged.

Windows are made of samples by the pipeline's own sums, so that a sample weighs here what it weighs there. Twelve
brokers lead five partitions each.

8. In a story of a silent broker one other broker is skewed, and plans are made: none takes a replica or a leader to the
   silent broker or from it. In a story of forged records the cluster is even, and one record a window claims a month in
   which a broker and its partitions took some more: no plan is made, since a record weighs two windows at most.
"""

import json
from random import Random

import pyarrow as pa

from assignor_core.plan import Movement, plan_from_json
from streaming import tables
from streaming.pipeline import sums
from streaming.settings import Settings
from tests.control.windows import window_columns
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.story import PlayedStory, played
from tests.simulation.world import CLUSTER, WINDOW_MS, Actor, World, settings_of
from tests.tables_in_memory import in_memory

BROKERS = range(1, 13)
LED = 5
RATE = 1_000_000
SKEWED_TIMES = 2.2
FORGED_TIMES = (1.36, 1.42)
"""What a forged record claims, as a multiple of the true rate: over the threshold of 1.3 if nothing else counted, and
below it with the weight of two windows beside the honest samples of one.
"""
MONTH_MS = 30 * 86_400_000
SAMPLE_MS = 10_000
STORY_MS = 900_000
RATES = ("bytes_in_per_sec", "replication_bytes_in_per_sec", "bytes_out_per_sec")
SUMS = sums.Sums(("broker", "topic", "partition"), RATES, (), (), ())
SCHEMA = pa.schema(
    [("broker", pa.int64()), ("topic", pa.string()), ("partition", pa.int64()), ("event_time_ms", pa.int64()),
     ("interval_ms", pa.int64()), *((name, pa.float64()) for name in RATES)]
)  # fmt: skip
Key = tuple[int, str | None, int | None]
"""Broker, and topic and partition of a leader; those two are None of the broker's totals."""


def run_sample_story(seed: int) -> PlayedStory:
    """The story of a seed from beginning to end."""
    return played(SampleStory(seed))


class SampleStory:
    """A cluster without faults, of which the samples don't show the truth."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(f"samples {seed}")
        self._doubtful, skewed = self._random.sample(BROKERS, 2)
        self._is_forged = seed % 2 == 1
        self._times = self._random.uniform(*FORGED_TIMES)
        cluster = SimulatedCluster.of(dict.fromkeys(BROKERS))
        placed = [(broker, (broker + hop - 1) % len(BROKERS) + 1) for broker in BROKERS for hop in range(1, LED + 1)]
        cluster.create_topic("t", dict(enumerate(placed)), bytes_in_per_sec=RATE, retention_bytes=10 * RATE)
        if not self._is_forged:
            for _, row in cluster.contents.partitions():
                row.bytes_in_per_sec = round(RATE * (SKEWED_TIMES if row.leader == skewed else 1))
        self.world = World(cluster, _settings(in_memory(f"samples-{seed}")))
        self.world.draw_release(seed)
        self.world.faults["a record is forged" if self._is_forged else "a broker is silent"] += 1
        self._monitor = Monitor(self.world, undisturbed=True)
        self._pipeline = Actor("pipeline")

    def run(self) -> PlayedStory:
        """For as long as several plans take."""
        world = self.world
        SimulatedControl("control 1", world, self._monitor).start()
        self._close_window()
        world.pass_time(STORY_MS)
        self._monitor.judge_end()
        self._judge_plans()
        return PlayedStory.of(self.seed, self._monitor, "samples")

    def _judge_plans(self) -> None:
        table = self.world.store.tables.get("plan")
        for row in table.rows if table else ():
            movements = plan_from_json(json.loads(row["plan_json"])).movements
            if self._is_forged:
                self._monitor.breaks("8 a record weighs two windows at most", f"{len(movements)} movements are planned")
            for movement in movements:
                if self._doubtful in _changed(movement):
                    self._monitor.breaks("8 a silent broker neither gets nor gives", f"{movement}")

    def _close_window(self) -> None:
        self._write_window()
        self.world.plan(WINDOW_MS, self._pipeline, self._close_window)

    def _write_window(self) -> None:
        """Rows of the window that has just ended, as the samples make it."""
        world, end_ms = self.world, self.world.now_ms
        start_ms = end_ms - WINDOW_MS
        rows = sums.windows(self._samples(start_ms), SUMS, WINDOW_MS).to_pylist()
        common = window_columns(CLUSTER, start_ms, WINDOW_MS)
        written: dict[str, list[tables.Row]] = {"partition_load": [], "broker_load": []}
        for row in rows:
            known = {name: row[sums.known_ms(name)] for name in RATES}
            rates = {name: row[sums.weight(name)] / known[name] if known[name] else None for name in RATES}
            if row["topic"] is None:
                written["broker_load"].append({**common, "broker": row["broker"], **rates})
            else:
                led = {name: row[name] for name in SUMS.keys} | {"role": "leader", "size_bytes": 10 * RATE}
                written["partition_load"].append(
                    {**common, **led, "bytes_in_per_sec": rates["bytes_in_per_sec"], "bytes_out_per_sec": 0.0}
                )
        for name, its_rows in written.items():
            tables.append(
                world.settings.storage.tables, name, its_rows, transaction_id="test", transaction_version=start_ms
            )

    def _samples(self, start_ms: int) -> pa.Table:
        """What the collector has sent of one window, and what somebody else has."""
        rows = []
        for key, rates in self._true_rates().items():
            is_doubtful = key[0] == self._doubtful
            if is_doubtful and not self._is_forged:
                continue
            honest = [(start_ms + at_ms, SAMPLE_MS, 1.0) for at_ms in range(0, WINDOW_MS, SAMPLE_MS)]
            forged = [(start_ms + WINDOW_MS - 1, MONTH_MS, self._times)] if is_doubtful else []
            for time_ms, interval_ms, times in honest + forged:
                values = dict(zip(RATES, (rate * times for rate in rates), strict=True))
                names = dict(zip(SUMS.keys, key, strict=True))
                rows.append({**names, **values, "event_time_ms": time_ms, "interval_ms": interval_ms})
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def _true_rates(self) -> dict[Key, tuple[float, float, float]]:
        led, replicated = dict.fromkeys(BROKERS, 0.0), dict.fromkeys(BROKERS, 0.0)
        rates: dict[Key, tuple[float, float, float]] = {}
        for (topic, number), row in self.world.cluster.placement.partitions():
            rate = float(row.bytes_in_per_sec)
            led[row.leader] += rate
            for broker in set(row.isr) - {row.leader}:
                replicated[broker] += rate
            rates[row.leader, topic, number] = (rate, 0.0, 0.0)
        return {**rates, **{(broker, None, None): (led[broker], replicated[broker], 0.0) for broker in BROKERS}}


def _changed(movement: Movement) -> set[int]:
    """Brokers that a movement takes a replica or the leader to, or from."""
    old, new = movement.old_replicas, movement.new_replicas
    return set(old) ^ set(new) | ({old[0], new[0]} if old[0] != new[0] else set())


def _settings(root: str) -> Settings:
    trigger = {
        "windows_over": 2, "windows_considered": 3, "resources": ["bytes_in"], "cooldown_ms": 0,
        "completeness_min": 0.9,
    }  # fmt: skip
    control = {"mode": "apply", "settle_windows": 1, "execution_deadline_ms": 300_000}
    return settings_of(root, trigger=trigger, planner={"windows": 3}, control=control)
