"""Which ranges of offsets need no second reading, against a list of every single record."""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from streaming.pipeline.checkpoints import CheckpointFiles, Offsets, newest_planned, planned
from streaming.pipeline.rejects import ReadRange, judge, wait_until_read

TOPIC, OTHER = "load", "lag"
BATCHES = itertools.count()


def report(begin: dict[str, int] | None, end: dict[str, int], *, rejected: int | None = 0, topic: str = TOPIC) -> Any:
    observed = {} if rejected is None else {"judged": {"rejected_rows": rejected, "accepted_rows": 1}}
    source = {"startOffset": None if begin is None else {topic: begin}, "endOffset": {topic: end}}
    key = {"timestamp": "2026-12-01T00:00:00.000Z", "batchId": next(BATCHES)}
    return {**key, "durationMs": {"addBatch": 1}, "observedMetrics": observed, "sources": [source]}


def of(**offsets: int) -> Offsets:
    return {(TOPIC, partition[1:]): offset for partition, offset in offsets.items()}


@pytest.mark.parametrize(
    ("reports", "begin", "end", "verdict"),
    [
        pytest.param([], {}, of(p0=5), ReadRange.UNREAD, id="nothing read"),
        pytest.param([], of(p0=5), of(p0=5), ReadRange.SOUND, id="nothing to read"),
        pytest.param([report(None, {"0": 5})], {}, of(p0=5), ReadRange.SOUND, id="from the start"),
        pytest.param([report({"0": 3}, {"0": 5})], of(p0=2), of(p0=5), ReadRange.SUSPECT, id="begun later"),
        pytest.param(
            [report({"0": 0}, {"0": 3}), report({"0": 3}, {"0": 9})],
            of(p0=1), of(p0=8), ReadRange.SOUND, id="two batches",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 3}), report({"0": 4}, {"0": 9})], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="a gap"
        ),
        pytest.param([report({"0": 0}, {"0": 9}, rejected=1)], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="a misfit"),
        pytest.param(
            [report({"0": 0}, {"0": 9}, rejected=None)], of(p0=1), of(p0=8), ReadRange.SUSPECT, id="not counted",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9}, rejected=1), report({"0": 9}, {"0": 12})],
            of(p0=9), of(p0=12), ReadRange.SOUND, id="behind a misfit",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9}), report({"0": 9}, {"0": 12, "1": 4})],
            of(p0=3), of(p0=12, p1=4), ReadRange.SOUND, id="a partition more",
        ),
        pytest.param(
            [report({"0": 0}, {"0": 9})], of(p0=3), of(p0=9, p1=4), ReadRange.UNREAD, id="one of two partitions",
        ),
    ],
)  # fmt: skip
def test_one_story(reports: list[Any], begin: Offsets, end: Offsets, verdict: ReadRange) -> None:
    assert judge(reports, begin, end) is verdict


@pytest.mark.parametrize(("begin", "verdict"), [(20, ReadRange.SOUND), (19, ReadRange.SUSPECT), (0, ReadRange.SUSPECT)])
def test_a_checkpoint_that_begins_in_the_middle_has_read_nothing_before(begin: int, verdict: ReadRange) -> None:
    """Spark reports no start of the first batch, wherever that begins."""
    assert judge([report(None, {"0": 50})], of(p0=begin), of(p0=50), of(p0=20)) is verdict
    assert judge([report(None, {"0": 50})], of(p0=begin), of(p0=50), of(p0=-2)) is ReadRange.SOUND


@pytest.mark.parametrize("seed", range(200))
def test_nothing_with_a_misfit_is_ever_called_sound(seed: int) -> None:
    chance = random.Random(seed)
    fits = {topic: [[chance.random() > 0.01 for _ in range(60)] for _ in range(2)] for topic in (TOPIC, OTHER)}
    reports = []
    at = {topic: [chance.randrange(5) for _ in range(2)] for topic in fits}
    first = {topic: list(ends) for topic, ends in at.items()}
    for _ in range(8):
        topic = chance.choice([TOPIC, OTHER])
        begin, end = list(at[topic]), [min(60, stop + chance.randrange(12)) for stop in at[topic]]
        rejected = sum(not fits[topic][p][o] for p in range(2) for o in range(begin[p], end[p]))
        named = [{str(p): offset for p, offset in enumerate(offsets)} for offsets in (begin, end)]
        reports.append(report(named[0], named[1], rejected=rejected, topic=topic))
        at[topic] = end
    for _ in range(30):
        reach = 60 if chance.random() < 0.5 else 12
        pairs = {(topic, p): sorted(chance.sample(range(reach), 2)) for topic in fits for p in range(2)}
        begin_of = {(topic, str(p)): pair[0] for (topic, p), pair in pairs.items()}
        end_of = {(topic, str(p)): pair[1] for (topic, p), pair in pairs.items()}
        verdict = judge(reports, begin_of, end_of)
        misfit = any(not fits[topic][p][offset] for (topic, p), pair in pairs.items() for offset in range(*pair))
        was_read = all(first[topic][p] <= pair[0] and pair[1] <= at[topic][p] for (topic, p), pair in pairs.items())
        assert verdict is not ReadRange.SOUND or (was_read and not misfit)
        unread = any(pair[1] > at[topic][p] or not _read(reports, topic) for (topic, p), pair in pairs.items())
        assert (verdict is ReadRange.UNREAD) == unread


def _read(reports: list[Any], topic: str) -> bool:
    return any(topic in source["endOffset"] for batch in reports for source in batch["sources"])


class Query:
    """A query that gets on by one report each time it is asked."""

    isActive = True  # noqa: N815 (Spark's name)

    def __init__(self, reports: list[Any], *, idle_looks: int = 0, works: bool = False) -> None:
        """`idle_looks`: how often it is asked before the first report."""
        self._coming = reports
        self._idle_looks = idle_looks
        self.status = {"isTriggerActive": works}
        self._reported: list[Any] = []

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        if self._idle_looks:
            self._idle_looks -= 1
        elif self._coming:
            self._reported.append(self._coming.pop(0))
        return self._reported[-1] if self._reported else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        return self._reported.copy()


@pytest.fixture
def files(tmp_path: Path) -> CheckpointFiles:
    """A checkpoint with two planned batches: up to offset 5, then up to 9."""
    (tmp_path / "offsets").mkdir()
    for batch, end in enumerate((5, 9)):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{TOPIC}":{{"0":{end}}}}}')
    return CheckpointFiles(str(tmp_path))


STEPS = (report(None, {"0": 4}), report({"0": 4}, {"0": 9}))


def known(
    query: Query, files: CheckpointFiles, batch_id: int = 1, *, patience_s: float, busy_s: float = 60
) -> ReadRange:
    return wait_until_read([query], files, batch_id, patience_s=patience_s, patience_busy_s=busy_s)


def test_waits_for_those_that_are_behind_but_not_for_ever(files: CheckpointFiles) -> None:
    assert planned(files, 0) == {(TOPIC, "0"): 5}
    assert newest_planned(files) == {(TOPIC, "0"): 9}
    assert known(Query(list(STEPS)), files, patience_s=60) is ReadRange.SOUND
    assert known(Query(list(STEPS[:1])), files, patience_s=0) is ReadRange.UNREAD
    assert known(Query(list(STEPS)), files, 7, patience_s=60) is ReadRange.SUSPECT


def test_waits_longer_for_a_query_that_works_on_a_batch(files: CheckpointFiles) -> None:
    assert known(Query(list(STEPS), idle_looks=3, works=True), files, patience_s=0.1) is ReadRange.SOUND
    assert known(Query(list(STEPS), idle_looks=3), files, patience_s=0.1) is ReadRange.UNREAD
    assert known(Query([], works=True), files, patience_s=0.1, busy_s=0.6) is ReadRange.UNREAD
