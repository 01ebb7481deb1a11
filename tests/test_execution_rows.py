"""Rows of `execution` as executions: what every reader of the table shares, and that all readers agree."""

import re
from pathlib import Path
from typing import Any

import pytest

from assignor_core.deciding.observation import GivenUp
from assignor_core.execution.events import ABORT_SEQUENCE, Event
from assignor_core.execution.life_cycle import TRANSITIONS, Phase
from streaming import tables
from streaming.commands.status import read_status
from streaming.contract import TABLES
from streaming.control.wiring import journal_of
from streaming.demo.story import read_story
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views import executions as view
from streaming.views.control import ControlReader
from streaming.views.executions import (
    CLOCKS_APART_MS,
    COLUMNS,
    OF_MOVEMENTS,
    SEARCH_MS,
    WHOLE_READ_INTERVAL_MS,
    KnownExecutions,
    OpenExecutions,
    event_of,
    folded,
    read_executions,
    read_open_executions,
    row_of,
)
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for


def row(sequence: int, event: str, at_ms: int = 0, execution_id: str = "e-1", **columns: Any) -> dict[str, Any]:
    return {
        "execution_id": execution_id, "sequence": sequence, "plan_id": "p", "event_time": tables.utc(at_ms),
        "event": event, "detail": event, "movements_total": 6, "movements_done": 0, "bytes_total": 5, "bytes_moved": 0,
        **columns,
    }  # fmt: skip


def nothing_more(execution_id: str) -> list[dict[str, Any]]:
    raise AssertionError(f"{execution_id} is read again")


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return settings_for(tables_in_memory)


@pytest.fixture
def synthetic(settings: Settings) -> Synthetic:
    return Synthetic(settings.storage.tables)


def test_columns_of_the_view_are_those_of_the_table() -> None:
    known = {column.name for column in TABLES["execution"].columns}
    assert known - set(COLUMNS) == {"kafka_cluster", "owner", *OF_MOVEMENTS}
    assert set(COLUMNS) <= known


def test_the_comment_of_the_column_names_every_event() -> None:
    comment = next(column.comment for column in TABLES["execution"].columns if column.name == "event")
    assert sorted(comment.split(", ")) == sorted(Event)


def test_the_phases_and_their_events_are_documented() -> None:
    lines = (Path(__file__).resolve().parents[1] / "docs" / "execution.md").read_text().splitlines()
    start = lines.index("| phase | meaning | events |") + 2
    documented: dict[tuple[str, str], str] = {}
    for line in lines[start : lines.index("", start)]:
        phase, _, events = (cell.strip() for cell in line.strip("|").split("|"))
        documented |= {
            (phase, event): after or phase for event, after in re.findall(r"`(\w+)`(?: \(([\w ]+)\))?", events)
        }
    assert documented == {pair: after for pair, after in TRANSITIONS.items() if pair[1] is not Event.ABORT_REQUESTED}


def test_a_row_becomes_an_event_and_the_same_row_again() -> None:
    whole = row(
        0, "approved", 1_000, throttled_brokers=[1, 2], throttle_bytes_per_sec=5, produce_p99_ms_before=1.5,
        in_windows_only=True, disk_max_over_mean_before=1.2, disk_max_over_mean_predicted=1.1,
    )  # fmt: skip
    execution = folded([whole])[0]
    written = row_of(execution, execution.last, kafka_cluster="c", owner="o")
    assert written == {**dict.fromkeys((*COLUMNS, *OF_MOVEMENTS)), **whole, "kafka_cluster": "c", "owner": "o"}
    assert event_of(written) == execution.last


@pytest.mark.parametrize("throttled", [None, []])
def test_no_throttle_is_kept_apart_from_one_that_was_removed(throttled: list[int] | None) -> None:
    execution = folded([row(0, "approved", throttled_brokers=throttled)])[0]
    assert row_of(execution, execution.last, kafka_cluster="c", owner="o")["throttled_brokers"] == throttled


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row(0, "approved"), row(1, "done")], "event done can't follow in phase waiting"),
        ([row(0, "approved"), row(2, "started")], "event 2 can't follow: the next one is 1"),
        ([row(0, "approved"), row(1, "postponed")], "'postponed' is not a valid Event"),
        ([row(1, "started")], r"event 1 \(started\) can't be the first"),
    ],
)
def test_a_history_that_makes_no_sense_is_named(rows: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(TableUnavailable, match=f"the history of e-1 makes no sense: {problem}"):
        folded(rows)


def test_a_lone_request_to_abort_is_no_execution() -> None:
    assert folded([row(ABORT_SEQUENCE, "abort_requested")]) == []
    known = KnownExecutions()
    known.add([row(ABORT_SEQUENCE, "abort_requested")], lambda _: [row(ABORT_SEQUENCE, "abort_requested")])
    assert known.in_focus is None


def test_events_older_than_the_search_are_read_where_newer_ones_are_there(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.event(NOW_MS, 0, "approved")
    synthetic.event(NOW_MS, 1, "started")
    synthetic.event(NOW_MS, 2, "done")
    synthetic.event(NOW_MS + 60_000, 3, "swept")
    root, now_ms = settings.storage.tables, NOW_MS + SEARCH_MS + 30_000
    [execution] = read_executions(TableReader(root), synthetic.cluster, now_ms=now_ms)
    assert (execution.execution_id, execution.phase, len(execution.events)) == ("e-1", Phase.DONE, 4)
    assert read_open_executions(TableReader(root), synthetic.cluster, now_ms=now_ms) == []


def test_what_is_open_or_owes_is_read_however_old_it_is(settings: Settings, synthetic: Synthetic) -> None:
    with synthetic.together():
        for sequence, event in enumerate(("approved", "started", "done")):
            synthetic.event(
                NOW_MS, sequence, event, execution_id="ended", throttled_brokers=[1] if sequence < 2 else []
            )
            synthetic.event(NOW_MS, sequence, event, execution_id="owes", throttled_brokers=[1])
        synthetic.event(NOW_MS, 0, "approved", execution_id="waits")
        for sequence, event in enumerate(("approved", "started")):
            synthetic.event(NOW_MS + 1, sequence, event, execution_id="paused")
        synthetic.event(NOW_MS, ABORT_SEQUENCE, "abort_requested", execution_id="waits")
    root, now_ms = settings.storage.tables, NOW_MS + 2 * SEARCH_MS
    assert {row.execution_id for row in read_executions(TableReader(root), synthetic.cluster, now_ms=now_ms)} == {
        "owes", "waits", "paused",
    }  # fmt: skip
    assert read_executions(TableReader(root), "another", now_ms=now_ms) == []
    open_executions = read_open_executions(TableReader(root), synthetic.cluster, now_ms=now_ms)
    assert [row.execution_id for row in open_executions] == ["waits", "paused"]
    known = {"waits"}
    [waiting] = read_open_executions(TableReader(root), synthetic.cluster, now_ms=now_ms, known_open=known)
    assert (waiting.execution_id, waiting.abort_requested) == ("waits", True)
    assert read_status(settings, now_ms=now_ms)["execution"]["execution_id"] == "paused"


def test_executions_that_mode_apply_gave_up_count_since_one_was_done(settings: Settings, synthetic: Synthetic) -> None:
    def ended(execution_id: str, event: str, minute: int, **columns: Any) -> None:
        row = {"in_windows_only": True} | columns
        synthetic.event(NOW_MS + minute * 60_000, 0, event, execution_id=execution_id, **row)

    reader = TableReader(settings.storage.tables)
    assert view.given_up(reader, synthetic.cluster, now_ms=NOW_MS) == GivenUp()
    with synthetic.together():
        ended("before", "aborted", 0)
        ended("done", "done", 1)
        ended("first", "aborted", 2)
        ended("stopped", "aborted", 3)
        ended("stopped", "abort_requested", 3)
        ended("by-hand", "aborted", 4, in_windows_only=False)
        ended("second", "aborted", 5)
        ended("refused", "refused", 6)
    given_up = view.given_up(TableReader(settings.storage.tables), synthetic.cluster, now_ms=NOW_MS + 600_000)
    assert given_up == GivenUp(2, NOW_MS + 5 * 60_000)


def test_a_journal_goes_on_with_what_was_open_when_its_last_event_is_too_old(settings: Settings) -> None:
    synthetic, journal = Synthetic(settings.storage.tables, cluster=settings.kafka.cluster_name), journal_of(settings)
    synthetic.event(NOW_MS, 0, "approved", execution_id="waits")
    for now_ms in (NOW_MS, NOW_MS + 2 * SEARCH_MS):
        assert [row.execution_id for row in journal.open_executions(now_ms=now_ms)] == ["waits"]
    synthetic.event(NOW_MS + 2 * SEARCH_MS, 1, "refused", execution_id="waits")
    assert journal.open_executions(now_ms=NOW_MS + 2 * SEARCH_MS) == []


def test_only_new_rows_are_folded_and_an_ended_execution_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noted(one: tables.Row) -> Any:
        seen.append(one["sequence"])
        return event_of(one)

    monkeypatch.setattr(view, "event_of", noted)
    ended = [row(0, "approved"), row(1, "started"), row(2, "done")]
    known = KnownExecutions()
    known.add(ended, nothing_more)
    known.add([row(0, "approved", 5, "e-2")], nothing_more)
    seen.clear()
    known.add([ended[-1], row(0, "approved", 5, "e-2"), row(1, "started", 6, "e-2")], nothing_more)
    assert seen == [1]
    assert known.in_focus is not None
    assert (known.in_focus.execution_id, known.in_focus.phase) == ("e-2", Phase.UNDER_WAY)
    known.add([row(ABORT_SEQUENCE, "abort_requested", 7, "e-2")], nothing_more)
    assert known.in_focus.phase is Phase.ABORTING


def test_each_execution_counts_once_in_the_totals() -> None:
    known = KnownExecutions()
    done = [row(0, "approved"), row(1, "started", 1_000), row(2, "done", 6_000), row(3, "measured", 7_000)]
    for length in range(1, len(done) + 1):
        known.add(done[:length], nothing_more)
    known.add([row(0, "refused", 8_000, "e-2")], nothing_more)
    known.add([row(0, "refused", 8_000, "e-2"), row(ABORT_SEQUENCE, "abort_requested", 8_000, "e-2")], nothing_more)
    known.add([row(0, "approved", 9_000, "e-3"), row(1, "aborted", 9_000, "e-3")], nothing_more)
    assert (known.failures, known.durations_s, known.last_done_ms) == (2, (5.0,), 6_000)
    assert known.in_focus is not None
    assert known.in_focus.execution_id == "e-3"


def test_an_execution_with_a_row_that_was_missed_is_read_anew() -> None:
    """Another process, with a clock that is behind, has written in between."""
    known, whole = KnownExecutions(), [row(0, "approved"), row(1, "started"), row(2, "paused"), row(3, "resumed")]
    known.add(whole[:2], nothing_more)
    known.add(whole[3:], lambda _: whole)
    assert known.in_focus is not None
    assert [event.event for event in known.in_focus.events] == [
        Event.APPROVED, Event.STARTED, Event.PAUSED, Event.RESUMED,
    ]  # fmt: skip


def test_serve_status_and_demo_show_one_that_is_paused_and_asked_to_abort_as_under_way(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.event(NOW_MS, 0, "approved")
    synthetic.event(NOW_MS + 1_000, 1, "started")
    synthetic.event(NOW_MS + 2_000, 2, "paused")
    synthetic.event(NOW_MS + 3_000, 0, "approved", execution_id="e-2")
    root, cluster = settings.storage.tables, settings.kafka.cluster_name
    reader = ControlReader(TableReader(settings.storage.tables), settings)

    def shown() -> tuple[Any, ...]:
        by_serve = reader.read().execution
        by_status = read_status(settings, now_ms=NOW_MS + 60_000)["execution"]
        assert by_serve is not None
        same = ("execution_id", "event", "detail", "movements_done", "movements_total", "bytes_moved", "bytes_total")
        assert {name: by_serve[name] for name in same} == {name: by_status[name] for name in same}
        return by_serve["execution_id"], by_serve["event"], by_serve["under_way"]

    assert shown() == ("e-2", "approved", False), "a pause is not under way"
    synthetic.event(NOW_MS + 4_000, ABORT_SEQUENCE, "abort_requested")
    reader = ControlReader(TableReader(settings.storage.tables), settings)
    assert shown() == ("e-1", "abort_requested", True)
    assert read_story(TableReader(root), cluster).now() == "abort_requested: abort_requested for a test"
    synthetic.event(NOW_MS + 5_000, 3, "aborted")
    reader = ControlReader(TableReader(settings.storage.tables), settings)
    assert shown() == ("e-2", "approved", False)
    assert read_story(TableReader(root), cluster).failed == "aborted for a test"


@pytest.mark.parametrize("behind_ms", [60_000, 3_600_000])
def test_serve_shows_events_of_machines_whose_clocks_are_behind(
    settings: Settings, synthetic: Synthetic, behind_ms: int
) -> None:
    synthetic.event(NOW_MS, 0, "approved")
    synthetic.event(NOW_MS + 1_000, 1, "started")
    reader = TableReader(settings.storage.tables)
    control = ControlReader(reader, settings)

    def shown() -> Any:
        reader.look_again()
        execution = control.read().execution
        assert execution is not None
        return execution["event"]

    assert shown() == "started"
    synthetic.event(NOW_MS + 500 - behind_ms, 2, "submitted")
    assert shown() == "submitted", "control runs on another machine now"
    synthetic.event(NOW_MS + 600 - behind_ms, ABORT_SEQUENCE, "abort_requested")
    assert shown() == "abort_requested"
    synthetic.event(NOW_MS + 2_000, 3, "aborted")
    assert shown() == "aborted"


def test_serve_shows_an_approval_by_a_machine_whose_clock_is_a_little_behind(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.event(NOW_MS, 0, "refused")
    reader = TableReader(settings.storage.tables)
    control = ControlReader(reader, settings)
    assert control.read().failures == 1
    synthetic.event(NOW_MS - 60_000, 0, "approved", execution_id="e-2")
    synthetic.event(NOW_MS - 59_000, 1, "started", execution_id="e-2")
    reader.look_again()
    part = control.read()
    assert part.execution is not None
    assert (part.execution["execution_id"], part.failures) == ("e-2", 1)


def test_the_demo_names_the_newest_plan_until_one_is_carried_out_in_whatever_order_rows_are_read(
    settings: Settings, synthetic: Synthetic
) -> None:
    synthetic.plan(NOW_MS + 60_000, "b" * 64)
    synthetic.plan(NOW_MS, "a" * 64)
    synthetic.plan(NOW_MS + 90_000, "c" * 64)
    synthetic.decision(NOW_MS + 60_000, "plan", "skewed", plan_id="b" * 64)
    synthetic.decision(NOW_MS, "plan", "skewed", plan_id="a" * 64)
    story = read_story(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert (story.planned_ms, story.detected_ms) == (NOW_MS + 60_000, NOW_MS + 60_000)
    assert story.plan is not None
    assert story.plan["plan_id"] == "b" * 64
    synthetic.event(NOW_MS + 100_000, 0, "approved")
    synthetic.event(NOW_MS + 100_000, 1, "started")
    story = read_story(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert (story.planned_ms, story.detected_ms) == (NOW_MS, NOW_MS)
    assert story.plan is not None
    assert story.plan["plan_id"] == "a" * 64


@pytest.fixture
def followed(synthetic: Synthetic) -> OpenExecutions:
    return OpenExecutions(synthetic.root, synthetic.cluster)


def seen(followed: OpenExecutions, now_ms: int) -> list[tuple[str, str]]:
    return [(row.execution_id, row.phase.value) for row in followed.read(now_ms=now_ms)]


def test_each_event_is_seen_at_the_next_look(synthetic: Synthetic, followed: OpenExecutions) -> None:
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS + 1, 0, "approved")
    assert seen(followed, NOW_MS + 1) == [("e-1", "waiting")]
    synthetic.event(NOW_MS + 2, 0, "approved", execution_id="e-2")
    synthetic.event(NOW_MS + 3, 1, "started", execution_id="e-2")
    assert seen(followed, NOW_MS + 3) == [("e-2", "under way"), ("e-1", "waiting")]
    synthetic.event(NOW_MS + 4, ABORT_SEQUENCE, "abort_requested", execution_id="e-2")
    assert seen(followed, NOW_MS + 4) == [("e-2", "aborting"), ("e-1", "waiting")]
    synthetic.event(NOW_MS + 5, 2, "aborted", execution_id="e-2")
    synthetic.event(NOW_MS + 6, 3, "swept", execution_id="e-2")
    assert seen(followed, NOW_MS + 6) == [("e-1", "waiting")]


def test_a_table_that_has_not_changed_is_not_read(
    synthetic: Synthetic, followed: OpenExecutions, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.event(NOW_MS, 0, "approved")
    before = seen(followed, NOW_MS)
    monkeypatch.setattr(
        type(tables.TableReader(synthetic.root)), "rows", lambda *_, **__: pytest.fail("the table is read")
    )
    assert seen(followed, NOW_MS + 1_000) == before
    assert seen(followed, NOW_MS + WHOLE_READ_INTERVAL_MS) == before


def test_events_that_are_known_are_not_read_again(
    synthetic: Synthetic, followed: OpenExecutions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One execution of many hours: a look reads the rows since the last one, not all of them."""
    hours_ago_ms, read = NOW_MS - 3_600_000, list[int]()
    with synthetic.together():
        synthetic.event(hours_ago_ms, 0, "approved")
        synthetic.event(hours_ago_ms, 1, "started")
        for sequence in range(2, 20):
            synthetic.event(hours_ago_ms, sequence, "progress")
    assert seen(followed, NOW_MS) == [("e-1", "under way")]
    kind = type(tables.TableReader(synthetic.root))
    rows_since = kind.rows_since

    def noted(*arguments: object, **named: object) -> object:
        answer = rows_since(*arguments, **named)  # type: ignore[arg-type]
        read.append(len(answer))
        return answer

    monkeypatch.setattr(kind, "rows_since", noted)
    synthetic.event(NOW_MS + 1_000, 20, "progress")
    synthetic.event(NOW_MS + 1_000, 21, "done")
    assert seen(followed, NOW_MS + 1_000) == []
    assert read == [2]


def test_an_event_from_a_clock_that_is_behind_is_seen(synthetic: Synthetic, followed: OpenExecutions) -> None:
    synthetic.event(NOW_MS, 0, "refused")
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS - CLOCKS_APART_MS, 0, "approved", execution_id="e-2")
    assert seen(followed, NOW_MS + 1_000) == [("e-2", "waiting")]
    synthetic.event(NOW_MS - 3_600_000, ABORT_SEQUENCE, "abort_requested", execution_id="e-2")
    assert seen(followed, NOW_MS + 2_000) == [("e-2", "waiting")]
    assert seen(followed, NOW_MS + WHOLE_READ_INTERVAL_MS) == [("e-2", "aborting")]


def test_an_event_from_a_clock_that_is_ahead_hides_no_other(synthetic: Synthetic, followed: OpenExecutions) -> None:
    synthetic.event(NOW_MS + 3_600_000, 0, "refused")
    assert seen(followed, NOW_MS) == []
    synthetic.event(NOW_MS + 1_000, 0, "approved", execution_id="e-2")
    assert seen(followed, NOW_MS + 1_000) == [("e-2", "waiting")]
    assert seen(followed, NOW_MS - 3_600_000) == [("e-2", "waiting")], "the clock was set back"
