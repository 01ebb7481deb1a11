"""Five days of control on a simulated cluster, and its decisions made again from the tables it has left.

Windows of ten minutes; control's loop as it runs, with executor and journal. Load has day and night, noise, a job that
loads broker 1 each night from 02:00 to 02:50, and a topic that grows for good on the fourth day.
"""

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from assignor_core.deciding.reasons import Reason
from assignor_core.live import PartitionKey
from streaming import tables
from streaming.control.policies import decision_policy
from streaming.control.replaying import DecidedAgain, decisions_again
from streaming.control.run import ControlLoop
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.runtime import clocks
from streaming.settings import DAY_MS, HOUR_MS, Settings
from tests.control.windows import write_windows
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster
from tests.tables_in_memory import forget, in_memory

WINDOW_MS = 600_000
DAYS = 5
BROKERS = (1, 2, 3, 4)
PARTITIONS_EACH = 4
JOB_PARTITIONS = 12.0
"""The job takes as much as so many partitions do: the broker that leads it is far above the mean wherever it lies."""
TICK_MS = 1_000
TICKS_MAX = 2_000
ERRORS = ClientErrors(ClusterRequestFailed, ClusterUnreachable)
ROOT = in_memory("decisions-again")
GROWN_MS = 3 * DAY_MS + 9 * HOUR_MS


def rates_at(random: Random, at_ms: int) -> dict[PartitionKey, float]:
    """What each partition takes in the window that ends then, `at_ms` after midnight of the first day, in bytes/s."""
    hour = at_ms % DAY_MS / HOUR_MS
    level = 1e6 * (1.0 + 0.5 * math.sin(2 * math.pi * (hour - 9) / 24))
    rates = {("t", number): level * random.gauss(1.0, 0.1) for number in range(len(BROKERS) * PARTITIONS_EACH)}
    is_night = 2 * HOUR_MS < at_ms % DAY_MS <= 2 * HOUR_MS + 50 * 60_000
    rates["job", 0] = level * (JOB_PARTITIONS if is_night else 0.1)
    rates["grown", 0] = rates["grown", 1] = level * (4.0 if at_ms > GROWN_MS else 0.1)
    return rates


class Days:
    """The cluster, the pipeline's windows, and control."""

    def __init__(self, settings: Settings, midnight_ms: int) -> None:
        self.settings, self.midnight_ms = settings, midnight_ms
        self.cluster = SimulatedCluster.of(dict.fromkeys(BROKERS))
        numbers = range(len(BROKERS) * PARTITIONS_EACH)
        self.cluster.create_topic("t", {number: (BROKERS[number % 4],) for number in numbers}, size_bytes=1_000)
        self.cluster.create_topic("job", {0: (1,)}, size_bytes=1_000)
        self.cluster.create_topic("grown", {0: (2,), 1: (2,)}, size_bytes=1_000)
        self.client = SimulatedClient(self.cluster, errors=ERRORS)
        self.loop = ControlLoop(self.client, settings, now_ms=midnight_ms)

    def live_through(self) -> None:
        random = Random(7)
        for index in range(1, DAYS * DAY_MS // WINDOW_MS + 1):
            end_ms = index * WINDOW_MS
            self.cluster.advance(end_ms - self.cluster.now_ms)
            rates = rates_at(random, end_ms)
            write_windows(
                self.settings, self.client.describe(), end_ms=self.midnight_ms + end_ms, rates=rates, windows=1
            )
            self._ticks()

    def _ticks(self) -> None:
        """Ticks up to one that carries nothing out."""
        for _ in range(TICKS_MAX):
            self.cluster.advance(TICK_MS)
            if not self.loop.tick(now_ms=self.midnight_ms + self.cluster.now_ms):
                return
        raise AssertionError("an execution does not end")


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    yield Settings.model_validate(
        {
            "storage": {"tables": ROOT},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "trigger": {"resources": ["bytes_in"]},
            "control": {"mode": "apply"},
        }
    )
    forget(ROOT)


@pytest.fixture(scope="module")
def days(settings: Settings) -> Days:
    midnight_ms = (clocks.now_ms() // DAY_MS - DAYS) * DAY_MS
    lived = Days(settings, midnight_ms)
    lived.live_through()
    return lived


def again(days: Days, **trigger: Any) -> list[DecidedAgain]:
    content = days.settings.model_dump()
    changed = Settings.model_validate({**content, "trigger": content["trigger"] | trigger})
    return decisions_again(changed, decision_policy(changed, ()), since_ms=days.midnight_ms)


@pytest.mark.long
def test_each_decision_is_made_again(days: Days) -> None:
    rows = again(days)
    reasons = Counter(row.then.reason for row in rows)
    assert len(rows) > DAYS * DAY_MS // WINDOW_MS - 20, "no decision while an execution is under way"
    assert {Reason.SKEWED, Reason.RECURRING, Reason.PASSING, Reason.BALANCED} <= reasons.keys(), reasons
    carried_out = [row for row in tables.read(ROOT, "execution") if row["event"] == "done"]
    assert len(carried_out) == reasons[Reason.SKEWED]
    assert [row for row in rows if not row.is_same] == []


@pytest.mark.long
def test_other_settings_decide_otherwise_where_it_matters(days: Days) -> None:
    differing = [row for row in again(days, recurring_load=False) if not row.is_same]
    assert {row.then.reason for row in differing} >= {Reason.RECURRING}
    assert all(row.now.reason is not Reason.RECURRING for row in differing)
