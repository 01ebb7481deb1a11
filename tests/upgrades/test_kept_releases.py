"""What each kept release left is read, and gone on with, by this one (see `keep`)."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from assignor_core.deciding.state import TriggerState
from assignor_core.execution.life_cycle import Phase
from streaming import tables
from streaming.cli import run
from streaming.contract import TABLE_FORMAT, TABLES
from streaming.control.journal import Journal
from streaming.control.lease import Lease
from streaming.runtime.jars import PROJECT_ROOT
from streaming.views.executions import read_executions
from tests.upgrades.keep import (
    BROKER,
    KEPT,
    READ_BEFORE,
    SAMPLES,
    broker_of,
    pipeline_settings,
    read_all,
)

RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz"))
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=RELEASES)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(KEPT / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    shutil.copy(KEPT / f"{request.param}.json", folder / "facts.json")
    return folder


@pytest.fixture
def facts(kept: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((kept / "facts.json").read_text())
    return content


@pytest.fixture
def root(kept: Path, tmp_path: Path) -> str:
    """The demo's tables, for one test alone."""
    return str(shutil.copytree(kept / "demo" / "tables", tmp_path / "tables"))


def asked(root: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str], *command: str) -> str:
    settings = ("--set", f"storage.tables={root}", "--set", f"kafka.cluster_name={facts['cluster']}")
    assert run([*command, *settings]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def journal_at(root: str, facts: dict[str, Any]) -> Journal:
    return Journal(root, facts["cluster"], mode="apply", plan_ttl_ms=HOUR_MS)


def test_a_release_is_kept() -> None:
    assert RELEASES


@pytest.mark.long
def test_all_tables_are_read_and_brought_up_to_date(
    root: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts["rows"].keys() >= {"broker_load", "decision", "plan", "movement", "execution", "lease"}
    for _ in range(2):
        for name, count in facts["rows"].items():
            rows = tables.read(root, name, columns=TABLES[name].column_names())
            assert len(rows) == count
            assert all(row.keys() == set(TABLES[name].column_names()) for row in rows)
        asked(root, facts, capsys, "tables", "upgrade")
    again = asked(root, facts, capsys, "tables", "upgrade", "--dry-run")
    assert again.endswith(f"format {TABLE_FORMAT}: all as this release needs them\n")


@pytest.mark.long
def test_people_are_shown_what_that_release_measured(
    root: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (execution,) = read_executions(tables.TableReader(root), facts["cluster"], now_ms=facts["made_at_ms"])
    assert [record.event.value for record in execution.history] == facts["events"]
    measured = facts["bytes_in_max_over_mean_measured"]
    query = (PROJECT_ROOT / "docs" / "queries" / "03_skew_before_and_after_each_plan.sql").read_text()
    answer = asked(root, facts, capsys, "sql", "--format", "json", query)
    assert measured in json.loads(answer)[0].values()
    assert execution.plan_id in answer
    assert "bytes in max/mean 1.0" in asked(root, facts, capsys, "status")
    asked(root, facts, capsys, "lag")


@pytest.mark.long
def test_control_goes_on_with_what_that_release_left_open(root: str, facts: dict[str, Any], tmp_path: Path) -> None:
    """At each event of its execution that release could have been stopped, and this one started."""
    rows = sorted(tables.read(root, "execution"), key=lambda row: row["sequence"])
    now_ms, before_its_end = facts["made_at_ms"], facts["events"].index("done")
    for stopped_after in range(1, before_its_end + 1):
        shutil.rmtree(Path(root) / "execution")
        for row in rows[:stopped_after]:
            tables.append(root, "execution", [row], transaction_id="kept", transaction_version=row["sequence"])
        journal = journal_at(root, facts)
        (execution,) = journal.open_executions(now_ms=now_ms)
        assert len(execution.events) == stopped_after
        plan = journal.movements_of(execution)
        assert plan is not None
        assert len(plan.movements) == rows[0]["movements_total"]
    journal.request_abort(execution, "a person", now_ms=now_ms)
    (execution,) = journal.open_executions(now_ms=now_ms)
    assert execution.phase is Phase.ABORTING


@pytest.mark.long
def test_control_takes_the_lease_and_the_state_of_that_release(root: str, facts: dict[str, Any]) -> None:
    journal = journal_at(root, facts)
    journal.make_tables()
    newest = journal.last_decision()
    assert newest is not None
    assert journal.trigger_state() == TriggerState.read(json.loads(newest["state_json"]))
    clock_ms: int = facts["made_at_ms"]

    def clock() -> int:
        return clock_ms

    lease = Lease(root, facts["cluster"], 10_000, clock, clock)
    if not lease.try_acquire():  # its holder did not give it back, and is waited for
        clock_ms += HOUR_MS
        assert lease.try_acquire()
    assert lease.held


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.apart
def test_the_pipeline_goes_on_where_that_release_was_ended(kept: Path, tmp_path: Path) -> None:
    """From its checkpoints, in windows that it had begun: the tables equal a recount of the samples of both."""
    from tests.pipeline.running import assert_recounted, numbered_records, produce

    home = kept / "pipeline"
    with broker_of(tmp_path / "brokers") as cluster:
        cluster.stop_broker(BROKER)
        for part in ("data", "metadata"):
            folder = cluster.brokers[0].folder / part
            shutil.rmtree(folder)
            shutil.copytree(home / "broker" / part, folder)
        cluster.start_broker(BROKER)
        settings = pipeline_settings(home, cluster)
        records = numbered_records(SAMPLES)
        produce(settings, settings.topics.byte_rate, records[READ_BEFORE:], partitions=2)
        read_all(settings, tmp_path, SAMPLES)
        assert_recounted(settings, records, tmp_path)
