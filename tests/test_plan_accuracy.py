"""How far earlier plans were off, as the tables show it: beside a plan, in `status` and in `what-if`."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assignor_core.planner import propose
from assignor_core.proposed_plan import ProposedPlan
from streaming import cli
from streaming.commands import plan as plan_module
from streaming.commands.plan import show
from streaming.serve.samples import samples
from streaming.serve.snapshot import read_snapshot
from streaming.settings import DAY_MS, Settings
from streaming.tables import TableReader
from streaming.views import accuracy as views
from streaming.views.accuracy import PLANS_MAX, AccuracyReader, accuracy_beside_plan, read_accuracy
from streaming.views.plans import plan_durations_ms
from tests.control.test_deciding import DescribedCluster, skewed
from tests.control.windows import write_windows
from tests.core.planner.cases import founding
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for


@pytest.fixture
def synthetic(tables_in_memory: str) -> Synthetic:
    return Synthetic(tables_in_memory)


def test_the_newest_plans_count_however_far_back_they_are(synthetic: Synthetic) -> None:
    """Before them came plans that were far off, and among them are some that moved replicas within brokers."""
    with synthetic.together():
        for number in range(PLANS_MAX + 3):
            age_ms = number**2 * DAY_MS
            synthetic.measured_plan(number, NOW_MS - age_ms, factor=1.1 if number < PLANS_MAX else 3.0)
        for number in range(100, 103):
            synthetic.measured_plan(number, NOW_MS, factor=None)
    accuracy = read_accuracy(TableReader(synthetic.root), synthetic.cluster)
    assert accuracy.max_over_mean is not None
    assert accuracy.max_over_mean.count == PLANS_MAX
    assert accuracy.max_over_mean.off_max == pytest.approx(0.1)
    assert accuracy.duration is not None
    assert accuracy.duration.off_max == 0.0
    assert read_accuracy(TableReader(synthetic.root), "another").max_over_mean is None


def test_two_plans_say_too_little_and_no_tables_say_nothing(synthetic: Synthetic) -> None:
    reader = TableReader(synthetic.root)
    assert read_accuracy(reader, synthetic.cluster).max_over_mean is None
    with synthetic.together():
        for number in range(2):
            synthetic.measured_plan(number, NOW_MS + number, factor=1.1)
    reader.look_again()
    assert read_accuracy(reader, synthetic.cluster).max_over_mean is None


def test_a_history_that_makes_no_sense_hides_no_plan(tables_in_memory: str) -> None:
    settings, synthetic = settings_for(tables_in_memory), Synthetic(tables_in_memory)
    for number in range(3):
        synthetic.event(NOW_MS, 0, "measured", execution_id=f"e-{number}", bytes_in_max_over_mean_measured=1.1)
    assert accuracy_beside_plan(settings) is None


ROW = {"median": -0.02, "off_median": 0.03, "likely": 0.08, "off_max": 0.11, "count": 12}


@pytest.mark.long
def test_a_plan_is_shown_with_how_far_earlier_ones_were_off(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = {"max_over_mean": ROW, "bytes_copied": None, "duration": None}
    proposed = ProposedPlan(propose(founding()))
    show(proposed, out_file=None, as_json=False, accuracy=accuracy)
    line = "predictions of the last 12 plans were off: max/mean by 3 % (median), 11 % at most"
    assert line in " ".join(capsys.readouterr().out.split())
    show(proposed, out_file=None, as_json=False, accuracy=dict.fromkeys(accuracy))
    assert "predictions" not in capsys.readouterr().out
    show(proposed, out_file=None, as_json=True, accuracy=accuracy)
    assert json.loads(capsys.readouterr().out)["accuracy"] == accuracy


@pytest.mark.long
def test_the_command_plan_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.json"
    content = {"kafka": {"cluster_name": "test"}, "storage": {"tables": str(tmp_path / "tables")}}
    file.write_text(json.dumps(content))
    settings, cluster = Settings.model_validate(content), skewed()
    now_ms = time.time_ns() // 1_000_000 // 60_000 * 60_000
    write_windows(settings, cluster.live, end_ms=now_ms)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for number in range(3):
            synthetic.measured_plan(number, now_ms - number * DAY_MS, factor=1.1)

    @contextmanager
    def described(_settings: object) -> Iterator[DescribedCluster]:
        yield cluster

    monkeypatch.setattr(plan_module, "live_cluster", described)
    assert cli.run(["plan", "--config", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["accuracy"]["max_over_mean"]["off_max"] == pytest.approx(0.1)
    assert shown["accuracy"]["bytes_copied"]["count"] == 3


def test_serve_has_it_and_reads_plans_again_only_after_a_measurement(
    synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = TableReader(synthetic.root)
    followed = AccuracyReader(reader, synthetic.cluster)
    plans_read: list[int] = []

    def counted(reader: TableReader, kafka_cluster: str, plan_ids: set[str]) -> dict[str, float | None]:
        plans_read.append(len(plan_ids))
        return plan_durations_ms(reader, kafka_cluster, plan_ids)

    monkeypatch.setattr(views, "plan_durations_ms", counted)
    assert followed.read().max_over_mean is None
    with synthetic.together():
        for number in range(3):
            synthetic.measured_plan(number, NOW_MS + number, factor=1.1)
    reader.look_again()
    for sequence in range(3):
        error = followed.read().max_over_mean
        assert error is not None
        assert (error.count, plans_read) == (3, [3])
        synthetic.event(NOW_MS + 10, sequence, ("approved", "started", "progress")[sequence], execution_id="e-new")
        reader.look_again()
    synthetic.measured_plan(3, NOW_MS + 20, factor=1.2)
    reader.look_again()
    assert followed.read() == read_accuracy(reader, synthetic.cluster)
    assert plans_read[:2] == [3, 4]


def test_metrics_have_it_from_three_plans_on(tables_in_memory: str) -> None:
    settings, synthetic = settings_for(tables_in_memory), Synthetic(tables_in_memory)

    def errors() -> dict[tuple[str, ...], float]:
        made = samples(read_snapshot(settings, NOW_MS + 1_000), settings, ("1", "2", "3"))
        return {(row.name, *row.labels): row.value for row in made if "promise_error" in row.name}

    for number in range(2):
        synthetic.measured_plan(number, NOW_MS + number, factor=1.1)
    assert errors() == {}
    synthetic.measured_plan(2, NOW_MS + 2, factor=0.7)
    shown = errors()
    assert shown["rebalance_promise_error_median_ratio", "max_per_mean"] == pytest.approx(0.1)
    assert shown["rebalance_promise_error_max_ratio", "max_per_mean"] == pytest.approx(0.3)
    assert shown["rebalance_promise_error_max_ratio", "bytes"] == 0.0
    assert shown["rebalance_promise_error_plans", "duration"] == 3
