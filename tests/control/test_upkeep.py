"""Which rows of control's tables expire, and that a kill in between loses nothing: tables of Delta and in memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pytest
from deltalake import write_deltalake
from pyarrow import compute as pc
from pydantic import ValidationError

from assignor_core.roll import Roll, RollEvent
from streaming import tables
from streaming.control import upkeep
from streaming.control.run import ControlLoop
from streaming.control.upkeep import TABLES_KEPT, Upkeep, expire
from streaming.control.wiring import journal_of
from streaming.errors import TableUnavailable
from streaming.settings import DAY_MS, ControlSettings, Settings
from streaming.tables import TableReader
from streaming.views.intents import drained_brokers
from streaming.views.rolls import row_of_roll
from tests.control.noted_cluster import NotedCluster, plan
from tests.serve.synthetic import Synthetic
from tests.tables_in_memory import forget, in_memory

NOW_MS = 1_795_000_000_000
LONG_AGO_MS, LATELY_MS = NOW_MS - 401 * DAY_MS, NOW_MS - 2 * DAY_MS
LATER_MS = NOW_MS + 1_000 * DAY_MS
KEEP = ControlSettings()


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """In memory, unless a test asks for Delta: `tests/tables/test_stores.py` holds both to the same."""
    name = str(tmp_path) if getattr(request, "param", "memory") == "delta" else in_memory()
    yield name
    forget(name)


def time_goes_on(root: str, *clusters: str) -> None:
    """Rows are written later than all else of a test, so that its clocks count as right."""
    for cluster in clusters or ("test",):
        rows = [{**prediction(LATER_MS + day * DAY_MS), "kafka_cluster": cluster} for day in (0, 1)]
        tables.append(root, "prediction", rows, transaction_id=f"later:{cluster}", transaction_version=0)


def run(root: str, *, settings: ControlSettings = KEEP, now_ms: int = NOW_MS) -> dict[str, int]:
    """Rows deleted by table, where any were."""
    return {name: count for name, count in expire(root, "test", settings, now_ms=now_ms).items() if count}


def times(root: str, name: str, column: str) -> list[int]:
    return sorted(tables.to_ms(row[column]) for row in tables.read(root, name, columns=[column]))


def ids(root: str, name: str, column: str) -> set[str]:
    return {row[column] for row in tables.read(root, name, columns=[column])}


def movement(plan_id: str, created_ms: int) -> dict[str, Any]:
    return {
        "plan_id": plan_id, "sequence": 0, "created_at": tables.utc(created_ms), "topic": "t", "partition": 0,
        "kind": "replica", "old_replicas": [1], "new_replicas": [2], "bytes_to_move": 5, "reason": "for a test",
    }  # fmt: skip


def notification(at_ms: int) -> dict[str, Any]:
    return {
        "webhook": "ops", "occurrence_id": f"plan:{at_ms}", "attempt": 0, "stage": "sent", "kafka_cluster": "test",
        "event_time": tables.utc(at_ms), "kind": "plan_waits", "subject": "p", "occurred_at": tables.utc(at_ms),
        "title": "Plan p waits", "detail": "", "facts_json": "{}", "status": 200,
    }  # fmt: skip


def prediction(at_ms: int) -> dict[str, Any]:
    times = dict.fromkeys(("predicted_at", "hours_start", "hours_end"), tables.utc(at_ms))
    figures = {"hours": 1, "brokers": 3, "plans": 0, "bytes_copied": 0.0}
    own = {"prediction_id": str(at_ms), "kafka_cluster": "test", "changes_json": "{}", "settings_json": "{}"}
    return own | times | figures


def act(at_ms: int) -> dict[str, Any]:
    texts = ("action", "actor", "signed_in_by", "role", "remote_address", "idempotency_key", "request_hash")
    own = {"act_id": str(at_ms), "stage": "ended", "kafka_cluster": "test", "event_time": tables.utc(at_ms)}
    return own | dict.fromkeys(texts, "x")


def note(broker: int, at_ms: int, intent: str = "drain", cluster: str = "test") -> dict[str, Any]:
    return {
        "kafka_cluster": cluster, "broker": broker, "event_time": tables.utc(at_ms), "intent": intent, "by": "a test",
    }  # fmt: skip


def rolled(roll_id: str, at_ms: int, *events: RollEvent) -> list[dict[str, Any]]:
    """Rows of a roll of broker 1."""
    roll, rows = Roll(roll_id, (1,)), []
    for event in events:
        at = tables.utc(at_ms)
        rows.append(row_of_roll(roll, event, kafka_cluster="test", event_time=at, detail="for a test", by="a test"))
        roll = roll if event is RollEvent.STARTED else roll.after(event)
    return rows


def history(synthetic: Synthetic, execution_id: str, at_ms: int, *events: str, **columns: Any) -> None:
    with synthetic.together():
        for sequence, event in enumerate(events):
            synthetic.event(at_ms + sequence, sequence, event, execution_id=execution_id, **columns)


def test_without_tables_there_is_nothing_to_do(root: str) -> None:
    assert run(root) == {}
    for name in TABLES_KEPT:
        tables.ensure_table(root, name)
    assert run(root) == {}


def test_decisions_go_after_their_time_by_the_day_and_the_newest_stays(root: str) -> None:
    time_goes_on(root, "test", "other")
    synthetic, other = Synthetic(root), Synthetic(root, cluster="other", _commits=100)
    oldest_kept_ms = NOW_MS - 30 * DAY_MS - NOW_MS % DAY_MS
    with other.together(), synthetic.together():
        for at_ms in (LONG_AGO_MS, oldest_kept_ms - 1, oldest_kept_ms, LATELY_MS):
            synthetic.decision(at_ms)
        for at_ms in (LONG_AGO_MS + 1, LONG_AGO_MS + 2):
            other.decision(at_ms)
    assert run(root) == {"decision": 2}
    kept = [LONG_AGO_MS + 1, LONG_AGO_MS + 2, oldest_kept_ms, LATELY_MS]
    assert times(root, "decision", "decided_at") == kept
    assert run(root) == {}
    assert expire(root, "other", KEEP, now_ms=NOW_MS)["decision"] == 1, "a control that was away goes on with its state"


def test_a_run_is_bounded_and_the_next_goes_on(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    time_goes_on(root)
    for bound in ("DECISIONS_AT_A_TIME", "PLANS_AT_A_TIME", "EXECUTIONS_AT_A_TIME", "NOTES_AT_A_TIME"):
        monkeypatch.setattr(upkeep, bound, 2)
    synthetic = Synthetic(root)
    with synthetic.together():
        for number in range(5):
            at_ms = LONG_AGO_MS + number
            synthetic.decision(at_ms)
            synthetic.plan(at_ms, f"p{number}")
            history(synthetic, f"e{number}", at_ms, "refused", plan_id=f"q{number}")
            synthetic.append("broker_intent", [note(number, at_ms), note(number, at_ms + 1)])
        synthetic.decision(NOW_MS)
    each = {"decision": 2, "plan": 2, "execution": 2, "broker_intent": 2}
    assert [run(root), run(root), run(root), run(root)] == [each, each, dict.fromkeys(each, 1), {}]


def test_executions_go_whole_and_those_that_are_open_or_owe_stay(root: str) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    with synthetic.together():
        history(synthetic, "done", LONG_AGO_MS, "approved", "started", "done")
        history(synthetic, "measured-lately", LONG_AGO_MS, "approved", "started", "done")
        synthetic.event(LATELY_MS, 3, "measured", execution_id="measured-lately")
        history(synthetic, "waits", LONG_AGO_MS, "approved")
        history(synthetic, "under-way", LONG_AGO_MS, "approved", "started", throttled_brokers=[1])
        history(synthetic, "owes", LONG_AGO_MS, "approved", "started", "aborted", throttled_brokers=[1])
        synthetic.event(LONG_AGO_MS, 1_000_000_000, "abort_requested", execution_id="no-more")
    Synthetic(root, cluster="other", _commits=100).event(LONG_AGO_MS, 0, "refused", execution_id="of-another")
    before = len(tables.read(root, "execution", columns=["event"]))
    kept = {"measured-lately", "waits", "under-way", "owes", "of-another"}
    gone = run(root)["execution"]
    assert ids(root, "execution", "execution_id") - {"no-more"} == kept
    assert len(tables.read(root, "execution", columns=["event"])) == before - gone
    assert run(root) == {}


def test_plans_stay_while_an_execution_of_them_is_kept_or_they_may_still_be_carried_out(root: str) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    old_ms = NOW_MS - 40 * DAY_MS
    with synthetic.together():
        for plan_id in ("nobody's", "carried-out", "expired-with-its-execution", "waits", "again"):
            synthetic.plan(old_ms, plan_id)
            synthetic.append("movement", [movement(plan_id, old_ms)])
        synthetic.plan(old_ms, "valid", expires_at=tables.utc(NOW_MS + 1))
        synthetic.plan(LATELY_MS, "again")
        synthetic.append("movement", [movement("of-another-cluster", old_ms)])
        history(synthetic, "e-1", old_ms, "approved", "started", "done", plan_id="carried-out")
        history(synthetic, "e-2", LONG_AGO_MS, "refused", plan_id="expired-with-its-execution")
        synthetic.decision(
            LATELY_MS, state_json=json.dumps({"waiting": {"plan_id": "waits", "load": 1.0, "failed": [], "reason": ""}})
        )
    assert run(root) == {"plan": 2, "movement": 2, "execution": 1}
    assert ids(root, "plan", "plan_id") == {"carried-out", "waits", "valid", "again"}
    assert ids(root, "movement", "plan_id") == {"carried-out", "waits", "again", "of-another-cluster"}
    assert len(times(root, "plan", "created_at")) == 5
    assert run(root) == {}


def test_notes_on_brokers_go_once_newer_ones_hold(root: str) -> None:
    time_goes_on(root)
    Synthetic(root).append(
        "broker_intent",
        [
            note(1, LONG_AGO_MS), note(1, LONG_AGO_MS + 1, "use"), note(1, LONG_AGO_MS + 2),
            note(2, LONG_AGO_MS), note(2, LATELY_MS, "use"), note(3, LONG_AGO_MS), note(1, LONG_AGO_MS, cluster="o"),
        ],
    )  # fmt: skip
    drained = drained_brokers(TableReader(root), "test")
    assert run(root) == {"broker_intent": 3}
    assert drained_brokers(TableReader(root), "test") == drained == {1, 3}
    assert times(root, "broker_intent", "event_time") == [LONG_AGO_MS, LONG_AGO_MS, LONG_AGO_MS + 2, LATELY_MS]


def test_rolls_go_whole_once_they_have_ended(root: str) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    with synthetic.together():
        synthetic.append("roll", rolled("done", LONG_AGO_MS, RollEvent.STARTED, RollEvent.DONE))
        synthetic.append("roll", rolled("open", LONG_AGO_MS, RollEvent.STARTED, RollEvent.DEMOTING))
        synthetic.append("roll", rolled("lately", LATELY_MS, RollEvent.STARTED, RollEvent.ABORTED))
    assert run(root) == {"roll": 2}
    assert ids(root, "roll", "roll_id") == {"open", "lately"}
    assert run(root) == {}


@pytest.mark.parametrize(
    ("root", "writes"),
    [
        *(("memory", writes) for writes in range(10)),
        *(pytest.param("delta", writes, marks=pytest.mark.long) for writes in (3, 7)),
    ],
    indirect=["root"],
)
def test_killed_at_any_step_the_next_run_completes_it(root: str, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    with synthetic.together():
        synthetic.plan(LONG_AGO_MS, "p")
        synthetic.append("movement", [movement("p", LONG_AGO_MS)])
        history(synthetic, "e", LONG_AGO_MS, "approved", "started", "done", plan_id="p")
        for at_ms in (LONG_AGO_MS, NOW_MS):
            synthetic.decision(at_ms)
        synthetic.append("broker_intent", [note(1, LONG_AGO_MS), note(1, NOW_MS)])
        synthetic.append("audit", [act(LONG_AGO_MS), act(NOW_MS)])
        synthetic.append("notification", [notification(LONG_AGO_MS), notification(NOW_MS)])
        synthetic.append("prediction", [prediction(LONG_AGO_MS), prediction(NOW_MS)])
        synthetic.append("roll", rolled("r", LONG_AGO_MS, RollEvent.STARTED, RollEvent.DONE))
    left, really_delete = writes, tables.delete

    def delete(*arguments: Any) -> int:
        nonlocal left
        if left == 0:
            raise TableUnavailable("killed")
        left -= 1
        return really_delete(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "delete", delete)
        if writes < 9:
            with pytest.raises(TableUnavailable):
                run(root)
        else:
            run(root)
    run(root)
    assert [len(tables.read(root, name)) for name in TABLES_KEPT] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 3, 0]


def test_a_plan_that_is_made_again_after_its_rows_have_gone_has_its_movements(root: str) -> None:
    time_goes_on(root)
    settings = Settings.model_validate({"storage": {"tables": root}, "kafka": {"cluster_name": "test"}})
    journal = journal_of(settings)
    for _ in range(2):
        plan(journal, 0, now_ms=LONG_AGO_MS)
    assert run(root) == {"plan": 1, "movement": 1}
    for later_ms in (0, 5):
        plan(journal, 0, now_ms=LATELY_MS + later_ms)
    assert times(root, "movement", "created_at") == [LATELY_MS]
    assert times(root, "plan", "created_at") == [LATELY_MS, LATELY_MS + 5]


@pytest.mark.long
def test_a_run_leaves_few_files_that_every_engine_reads(tmp_path: Path) -> None:
    time_goes_on(str(tmp_path))
    synthetic, root = Synthetic(str(tmp_path)), str(tmp_path)
    for at_ms in (LONG_AGO_MS, LATELY_MS, NOW_MS):
        synthetic.decision(at_ms)
    made = Upkeep(root, "test", KEEP, interval_ms=1_000, now_ms=NOW_MS)
    made.run_if_due(now_ms=NOW_MS + 999)
    assert len(times(root, "decision", "decided_at")) == 3
    made.run_if_due(now_ms=NOW_MS + 1_000)
    table = tables.open_table(root, "decision")
    assert table is not None
    assert len(table.file_uris()) == 1
    held = pc.field("verdict") == "hold"
    assert table.to_pyarrow_dataset().to_table(filter=held).num_rows == 2
    [file] = table.file_uris()
    assert duckdb.read_parquet(file).filter("verdict = 'hold'").count("*").fetchall() == [(2,)]


@pytest.mark.parametrize("rows_ahead", [0, 5])
def test_a_clock_that_is_ahead_for_an_hour_deletes_nothing(root: str, rows_ahead: int) -> None:
    """Neither if control has written rows by that clock before its upkeep."""
    synthetic, ahead_ms = Synthetic(root), NOW_MS + 6 * 365 * DAY_MS
    with synthetic.together():
        for days in (1, 2, 20, 29):
            at_ms = NOW_MS - days * DAY_MS
            synthetic.decision(at_ms)
            synthetic.plan(at_ms, f"p{days}")
            history(synthetic, f"e{days}", at_ms, "approved", "started", "done", plan_id=f"p{days}")
            synthetic.append("movement", [movement(f"p{days}", at_ms)])
            synthetic.append("broker_intent", [note(1, at_ms)])
            synthetic.append("audit", [act(at_ms)])
            synthetic.append("notification", [notification(at_ms)])
            synthetic.append("prediction", [prediction(at_ms)])
        for minute in range(rows_ahead):
            synthetic.decision(ahead_ms + minute * 60_000)
    assert run(root, now_ms=ahead_ms + 600_000) == {}
    assert run(root) == {}, "the clock is right again"


def test_rows_expire_though_the_clock_is_set_back(root: str) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    for at_ms in (LONG_AGO_MS, LATELY_MS):
        synthetic.decision(at_ms)
    Upkeep(root, "test", KEEP, interval_ms=1_000, now_ms=NOW_MS + DAY_MS).run_if_due(now_ms=NOW_MS)
    assert times(root, "decision", "decided_at") == [LATELY_MS]


@pytest.mark.long
def test_rows_of_an_earlier_version_expire_too(tmp_path: Path) -> None:
    root = str(tmp_path)
    history(Synthetic(root), "e", LONG_AGO_MS, "approved", "started", "done")
    new = {"throttled_brokers", "produce_p99_ms_before", "in_windows_only"}
    rows = tables.read_arrow(root, "execution")
    old = tmp_path / "old"
    write_deltalake(str(old / "execution"), rows.select([name for name in rows.column_names if name not in new]))
    time_goes_on(str(old))
    assert run(str(old)) == {"execution": 3}


def test_what_control_still_looks_at_can_not_be_set_to_expire() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 2678400000"):
        ControlSettings(execution_retention_ms=30 * DAY_MS)


@pytest.mark.long
def test_two_that_expire_rows_at_the_same_time_while_another_writes_lose_nothing(tmp_path: Path) -> None:
    """A control whose lease has just been taken may still be at it."""
    time_goes_on(str(tmp_path))
    root, synthetic = str(tmp_path), Synthetic(str(tmp_path))
    for number in range(20):
        synthetic.decision(LONG_AGO_MS + number)
    unavailable: list[str] = []

    def expires() -> None:
        try:
            run(root)
        except TableUnavailable as error:
            unavailable.append(str(error))

    def writes() -> None:
        for number in range(10):
            synthetic.decision(NOW_MS + number)

    threads = [Thread(target=target) for target in (expires, writes, expires)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("can't be deleted" in problem for problem in unavailable)
    run(root)
    assert times(root, "decision", "decided_at") == [NOW_MS + number for number in range(10)]


def test_control_deletes_expired_rows_between_two_ticks(tables_in_memory: str) -> None:
    """Whoever runs control needs to do nothing for it."""
    time_goes_on(tables_in_memory)
    settings = Settings.model_validate({"kafka": {"cluster_name": "test"}, "storage": {"tables": tables_in_memory}})
    synthetic, cluster = Synthetic(tables_in_memory), NotedCluster()
    with synthetic.together():
        for at_ms in (LONG_AGO_MS, LATELY_MS):
            synthetic.decision(at_ms)
    loop = ControlLoop(cluster, settings, now_ms=NOW_MS)
    interval_ms = settings.pipeline.maintenance_interval_ms
    loop.tick(now_ms=NOW_MS + interval_ms - 1)
    assert len(times(tables_in_memory, "decision", "decided_at")) == 2
    loop.tick(now_ms=NOW_MS + interval_ms)
    assert times(tables_in_memory, "decision", "decided_at") == [LATELY_MS]


@pytest.mark.parametrize("state_json", ["{", "null", '{"timers": 3}'])
def test_a_state_that_can_not_be_read_ends_no_upkeep(root: str, state_json: str) -> None:
    time_goes_on(root)
    synthetic = Synthetic(root)
    synthetic.plan(NOW_MS - 40 * DAY_MS, "nobody's")
    synthetic.decision(LATELY_MS, state_json=state_json)
    assert run(root) == {"plan": 1}
