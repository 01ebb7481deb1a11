"""`rebalancer apply FILE` up to its question: what is kept of a plan file, what is refused, and what is shown."""

import io
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from assignor_core.errors import CoreError, PlanTampered
from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan, plan_to_json
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from streaming import tables
from streaming.cli import run
from streaming.commands import lifecycle
from streaming.commands.apply import _plan_of_file, _propose_again, apply
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import journal_of
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.settings import Settings
from tests.control.test_deciding import crowded
from tests.control.windows import write_windows
from tests.tables_in_memory import given_to_commands

HOUR_MS = 3_600_000
MOVE = Movement("t", 0, (1, 2), (3, 2), 5.0)


@pytest.fixture(autouse=True)
def _brokers_that_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nobody agrees to carry a plan out: brokers are asked for the user's rights alone."""
    monkeypatch.setattr("streaming.cluster.clients.admin_client", lambda _kafka: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("streaming.cluster.permissions.check_may_execute", lambda _admin: None)


@pytest.fixture
def own(tables_in_memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of commands that run in a folder of the test's own."""
    given_to_commands(monkeypatch, tables_in_memory)
    monkeypatch.chdir(tmp_path)
    return Settings.model_validate({"storage": {"tables": tables_in_memory}})


def written(*movements: Movement, cluster_id: str = "main", hash_version: int = 2, **besides: Any) -> dict[str, Any]:
    """What the core alone writes of a plan, and what else a file may hold; the id covers it."""
    content = {**plan_to_json(Plan(cluster_id, movements, hash_version=hash_version)), **besides}
    with suppress(KeyError, ValueError):  # what is no observation can't be hashed
        observed = Observed.from_json(besides["observed"]) if "observed" in besides else None
        skew = (content["skew_before"], content["skew_after"])
        hashed = Plan(cluster_id, movements, *skew, observed=observed, hash_version=hash_version)
        content["plan_id"] = hashed.plan_id
    return content


def plan_file(content: object) -> str:
    """The name of a file with this content, which is written as JSON unless it is text."""
    Path("plan.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return "plan.json"


def asked(content: object, *assignments: str) -> Result:
    """`apply` of a file with this content; the answer is no, so that no cluster is needed."""
    arguments = [plan_file(content), *(part for row in assignments for part in ("--set", row))]
    return CliRunner().invoke(apply, arguments, input="n\n", standalone_mode=False, catch_exceptions=False)


def of_file(own: Settings, content: object) -> tuple[KeptPlan, bool]:
    """The plan of a file with this content, as `apply` takes it, and whether the tables have it."""
    return _plan_of_file(plan_file(content), journal_of(own), own)


def kept(own: Settings) -> list[dict[str, Any]]:
    return [*tables.read(own.storage.tables, "plan"), *tables.read(own.storage.tables, "movement")]


@pytest.mark.parametrize("cluster_id", ["main", ""], ids=["ours", "nobody named one"])
def test_a_plan_of_the_core_alone_is_shown_and_nothing_of_it_is_kept_before_somebody_agrees(
    own: Settings, cluster_id: str
) -> None:
    answer = asked(written(MOVE, cluster_id=cluster_id))
    assert answer.return_value == 3
    assert "1 movement, 5 B to copy, without its effect on the skew" in answer.output
    assert kept(own) == []


def test_who_may_not_carry_it_out_is_not_asked(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_admin: object) -> None:
        raise UsageProblem("this user may not carry out plans")

    monkeypatch.setattr("streaming.cluster.permissions.check_may_execute", refused)
    with pytest.raises(UsageProblem, match="may not carry out plans"):
        asked(written(MOVE))


def test_each_movement_is_shown_before_the_question(own: Settings) -> None:
    answer = asked(written(Movement("t", 0, (1, 2), (3, 2), 5.0, "empties broker 1")))
    assert answer.output.index("empties broker 1\n  t-0 1,2 -> 3,2 5 B\n") < answer.output.index("Carry out this plan")


def test_with_json_all_that_is_for_people_stands_on_standard_error(own: Settings) -> None:
    arguments = [plan_file(written(MOVE)), "--json"]
    answer = CliRunner().invoke(apply, arguments, input="n\n", standalone_mode=False, catch_exceptions=False)
    assert (answer.return_value, answer.stdout) == (3, "")
    assert answer.stderr.index("1 movement, 5 B") < answer.stderr.index("Carry out this plan")


def test_what_a_plan_promises_is_shown(own: Settings) -> None:
    before, after = ({"bytes_in": {"max_over_mean": ratio}} for ratio in (2.0, 1.25))
    answer = asked(written(MOVE, skew_before=before, skew_after=after, elapsed_ms=1.5))
    assert "bytes_in max/mean 2.000 -> 1.250" in answer.output


RATIO = {"bytes_in": {"max_over_mean": 1.0}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (written(MOVE, cluster_id="staging"), "is for cluster 'staging', kafka.cluster_name is 'main'"),
        (written(Movement("t", 0, (1, 2), (), 5.0)), "t-0: would have no replicas"),
        (written(Movement("t", 0, (1, 2), (3, 3), 5.0)), "t-0: new replicas [3, 3] name a broker twice"),
        (written(Movement("t", 0, (), (1,), 5.0)), "partition t-0: found no replicas"),
        (written(MOVE, Movement("t", 0, (1, 2), (4, 2), 5.0)), "t-0: planned 2 times"),
        (written(Movement("t", -1, (1,), (3,), 5.0)), "partition number in topic t: found -1"),
        (written(Movement("t", 0, (1,), (3_000_000_000,), 5.0)), "broker_id: found 3000000000"),
        (written(Movement("t", 0, (1,), (3,), -5.0)), "found -5.0"),
        (written(Movement("t", 0, (1,), (3,), float("nan"))), "found nan"),
        (written(Movement("t", 0, (1,), (3,), 1e20)), "bytes_to_move: found 1e+20"),
        (written(MOVE, elapsed_ms="soon"), "elapsed_ms: Input should be a valid number"),
        (written(MOVE, skew_before={"bytes_in": 2.0}), "skew_before.bytes_in: Input should be an object"),
        (written(MOVE, skew_after={"bytes_in": {"max_over_mean": "2"}}), "skew_after.bytes_in.max_over_mean"),
        (written(MOVE, lower_bound={"disk": 1.0}, skew_after=RATIO), "lower_bound: names a resource"),
        (written(MOVE, observed={"leaders": []}), "observed.partition_counts: Field required"),
        (written(MOVE, observed={"leaders": [["t", 0]], "partition_counts": {}}), "observed.leaders.0.2"),
        ({"plan_id": "x"}, "found no valid 'cluster_id'"),
        ([], "found list, allowed is an object"),
        ({**written(MOVE), "plan_id": "x"}, "the content hashes to"),
        ("{", "Expecting property name"),
        (json.dumps(written(MOVE)).replace('"wave"', '"wave": 0, "wave"', 1), '"wave" occurs twice in one object'),
        ("       Plan 5e01660da3d9\n", "is no JSON, which `rebalancer plan --out FILE` writes: Expecting value"),
        pytest.param("[" * 100_000, "recursion", id="deep"),
        pytest.param(
            json.dumps(written(MOVE)).replace('"partition": 0', '"partition": 1e999', 1), "infinity", id="inf"
        ),
    ],
)
def test_what_is_no_plan_for_this_cluster_is_named_and_nothing_of_it_is_kept(
    own: Settings, content: object, problem: str
) -> None:
    with pytest.raises((UsageProblem, CoreError)) as raised:
        asked(content)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert kept(own) == []


OBSERVED = {"leaders": [["t", 0, 1]], "partition_counts": {"t": 1}, "brokers_missing": [7]}
BY_AN_EARLIER_VERSION = {"leaders": [["t", 0, 1]], "partition_counts": {"t": 1}}


@pytest.mark.parametrize(
    ("besides", "hash_version"),
    [
        pytest.param({"observed": OBSERVED, "elapsed_ms": 1.5}, 2, id="made on the live cluster, and kept then"),
        pytest.param({"observed": BY_AN_EARLIER_VERSION, "elapsed_ms": 1.5}, 1, id="kept by an earlier version"),
        pytest.param({"elapsed_ms": 1.5}, 1, id="made from a model by an earlier version"),
    ],
)
def test_a_plan_that_was_kept_when_it_was_made_does_not_grow_young_in_a_file(
    own: Settings, besides: Mapping[str, Any], hash_version: int
) -> None:
    content = written(MOVE, hash_version=hash_version, **besides)
    before_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    journal_of(own).write_plan(ProposedPlan.from_json(content), decision=None, now_ms=before_ms)
    rows = kept(own)
    for elapsed_ms in (1.5, 1.625):
        plan, is_stored = of_file(own, {**content, "elapsed_ms": elapsed_ms})
        assert (plan.created_ms, is_stored) == (before_ms, True)
    assert kept(own) == rows


def test_a_plan_from_a_model_has_no_age_and_lives_anew(own: Settings) -> None:
    content, began_ms = written(MOVE), time.time_ns() // 1_000_000
    journal_of(own).write_plan(ProposedPlan.from_json(content), decision=None, now_ms=began_ms - 2 * HOUR_MS)
    plan, is_stored = of_file(own, content)
    assert plan.created_ms >= began_ms
    assert plan.expires_ms - plan.created_ms == own.planner.plan_ttl_ms
    assert not is_stored


SECOND = Movement("t", 1, (1, 2), (3, 2), 7.0, wave=1)
FULL: dict[str, Any] = {"observed": {**OBSERVED, "kafka_cluster_id": "k", "topic_ids": {"t": "id-of-t"}}}


def edited(content: Mapping[str, Any], edit: str) -> dict[str, Any]:
    """The content of a plan file after somebody's edit."""
    changed: dict[str, Any] = json.loads(json.dumps(content))
    if edit == "waves":
        changed["movements"][1]["wave"] = 0
    elif edit == "bytes":
        changed["movements"][0]["bytes_to_move"] = 1.0
    elif edit == "observed":
        del changed["observed"]
    elif edit == "identity":
        changed["observed"]["topic_ids"] = {}
    elif edit == "leaders":
        changed["observed"]["leaders"] = []
    return changed


@pytest.mark.parametrize("hash_version", [1, 2])
@pytest.mark.parametrize("edit", ["waves", "bytes", "observed", "identity", "leaders"])
def test_an_edited_file_is_not_carried_out_under_the_id_of_a_stored_plan(
    own: Settings, edit: str, hash_version: int
) -> None:
    content = written(MOVE, SECOND, hash_version=hash_version, **FULL)
    now_ms = time.time_ns() // 1_000_000
    journal_of(own).write_plan(ProposedPlan.from_json(content), decision=None, now_ms=now_ms)
    rows = kept(own)
    with pytest.raises(PlanTampered, match=r"the content hashes to|in the stored plan of that id"):
        asked(edited(content, edit))
    assert kept(own) == rows
    assert of_file(own, content)[0].proposed.observed == Observed.from_json(FULL["observed"])


def test_an_edited_file_with_a_hash_of_its_own_is_another_plan(own: Settings) -> None:
    """Neither the id of the plan that was shown to others, nor a row of it, before somebody agrees."""
    changed = written(MOVE, Movement("t", 1, (1, 2), (3, 2), 7.0), **FULL)
    now_ms, content = time.time_ns() // 1_000_000, written(MOVE, SECOND, **FULL)
    journal_of(own).write_plan(ProposedPlan.from_json(content), decision=None, now_ms=now_ms)
    rows = kept(own)
    assert changed["plan_id"][:12] != content["plan_id"][:12]
    answer = asked(changed)
    assert f"plan {changed['plan_id'][:12]}: 2 movements" in answer.output
    assert kept(own) == rows


def test_a_file_of_an_earlier_release_whose_plan_is_not_stored_is_refused(own: Settings) -> None:
    with pytest.raises(UsageProblem, match="an earlier release wrote it"):
        asked(written(MOVE, hash_version=1, **FULL))


def test_a_file_of_a_later_release_is_refused(own: Settings) -> None:
    with pytest.raises(UsageProblem, match="hash_version: found 3, this release reads up to 2"):
        asked({**written(MOVE), "hash_version": 3})


def test_what_an_apply_waits_for_and_what_it_does_not_is_shown_before_it_asks(own: Settings) -> None:
    journal, now_ms = journal_of(own), time.time_ns() // 1_000_000
    other = Plan("main", (Movement("t", 1, (1,), (2,), 5.0),))
    journal.write_plan(ProposedPlan(other), decision=None, now_ms=now_ms)
    execution = journal.approve(journal.plan(other.plan_id), "a test", now_ms=now_ms)
    day = time.strftime("%a", time.gmtime(now_ms / 1000 + 3 * 86_400))
    answer = asked(written(MOVE), f"control.maintenance_windows=[{day} 01:00-02:00]")
    assert f"Execution {execution.execution_id} is open (approved: " in answer.output
    assert "this plan waits for its end, which rebalancer abort brings." in answer.output
    assert "No maintenance window is open: this plan does not wait for " in answer.output


def ended(own: Settings, content: Mapping[str, Any], event: Event, *, made_ago_ms: int, ended_ago_ms: int) -> str:
    """The plan is made, and its execution ends; returns the execution's id."""
    journal, now_ms = journal_of(own), time.time_ns() // 1_000_000
    journal.write_plan(ProposedPlan.from_json(dict(content)), decision=None, now_ms=now_ms - made_ago_ms)
    kept, at_ms = journal.plan(content["plan_id"]), now_ms - ended_ago_ms
    record = ExecutionRecord(journal.approve(kept, "a test", now_ms=at_ms))
    journal.write_event(record, Event.STARTED, "", now_ms=at_ms)
    journal.write_event(record, event, "so it ended", now_ms=at_ms)
    return record.execution.execution_id


def test_a_plan_that_was_carried_out_is_refused_until_it_is_made_anew(own: Settings) -> None:
    content = written(MOVE, observed=OBSERVED, elapsed_ms=1.5)
    execution = ended(own, content, Event.DONE, made_ago_ms=2 * HOUR_MS, ended_ago_ms=HOUR_MS)
    for arguments in ([content["plan_id"]], [content["plan_id"][:12], "--yes"]):
        with pytest.raises(RefusedForSafety, match=rf"was carried out by execution {execution}, which ended at 2\d"):
            CliRunner().invoke(apply, arguments, standalone_mode=False, catch_exceptions=False)
    journal_of(own).write_plan(ProposedPlan.from_json(content), decision=None, now_ms=time.time_ns() // 1_000_000)
    answer = asked(content)
    assert answer.return_value == 3
    assert f"was carried out by execution {execution}" in answer.output
    assert "made again since" in answer.output


def test_what_an_abort_has_left_of_a_plan_may_be_carried_out(own: Settings) -> None:
    content = written(MOVE, observed=OBSERVED, elapsed_ms=1.5)
    execution = ended(own, content, Event.ABORTED, made_ago_ms=2 * HOUR_MS, ended_ago_ms=HOUR_MS)
    answer = asked(content)
    assert f"Execution {execution} of this plan ended at " in answer.output
    assert "(aborted: so it ended)." in answer.output
    assert "Carry out this plan on the live cluster?" in answer.output


def test_a_no_is_one_line_and_no_error(own: Settings) -> None:
    answer = asked(written(MOVE))
    assert answer.return_value == 3
    assert answer.stderr == "not carried out: nothing was changed on the cluster\n"


@pytest.mark.parametrize("command", ["apply", "drain"])
def test_where_nobody_answers_the_option_is_named(
    command: str, own: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = written(MOVE, observed=OBSERVED, elapsed_ms=1.5)
    proposed = ProposedPlan.from_json(content)
    journal_of(own).write_plan(proposed, decision=None, now_ms=time.time_ns() // 1_000_000)
    monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, **_now: proposed)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    arguments = {"apply": [content["plan_id"]], "drain": ["1", "--apply"]}[command]
    assert run([command, *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == "error: no terminal to ask on: use --yes"
    assert (shown.out + shown.err).count("?") == 1


def test_where_a_plan_no_longer_fits_a_new_one_is_shown(
    tables_in_memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Settings.model_validate({"storage": {"tables": tables_in_memory}})
    cluster = crowded()
    write_windows(own, cluster.live, end_ms=time.time_ns() // 1_000_000)
    _propose_again(cluster, own)
    (row,) = tables.read(own.storage.tables, "plan")
    acts = {(act["action"], act["target"], act["signed_in_by"]) for act in tables.read(own.storage.tables, "audit")}
    assert acts == {("plan", row["plan_id"], "command line")}
    shown = capsys.readouterr().out
    assert f"a new plan was made; to carry it out: rebalancer apply {row['plan_id'][:12]}" in shown
    assert f"plan {row['plan_id'][:12]}: " in shown
