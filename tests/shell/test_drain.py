"""`rebalancer drain` without enough room on disks: refused if the broker is alive, partial if it is gone."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.commands import lifecycle
from streaming.errors import RefusedForSafety
from tests.core.planner.test_disk_room import full_cluster


def proposed(model: ClusterState) -> ProposedPlan:
    """What a drain of broker 6 plans on the model."""
    partitions = {
        (row.topic, row.partition): LivePartition(row.replicas, row.replicas[0], row.replicas)
        for row in model.partitions
    }
    alive = {row.broker_id: row.rack for row in model.brokers if row.state is BrokerState.ALIVE}
    only = frozenset({6})
    plan = propose(model, PlannerPolicy(only_brokers=only, drain=only))
    return ProposedPlan(plan, Observed.of(plan, LiveCluster("c", alive, partitions)))


def drained(model: ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a drain that a person does not confirm."""
    monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, **_now: proposed(model))
    arguments = ["6", "--apply", "--set", f"storage.tables={tmp_path / 'tables'}"]
    result = CliRunner().invoke(lifecycle.drain, arguments, input="n\n", standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert "left out: t-" in result.output
    assert isinstance(result.return_value, int)
    return result.return_value


def test_a_broker_that_is_alive_is_not_emptied_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RefusedForSafety, match=r"broker 6 can't be emptied: .*moving can't help, add brokers or disks$"
    ):
        drained(full_cluster(away=0, used=0.85), tmp_path, monkeypatch)


def test_of_a_broker_that_is_gone_as_much_is_made_anew_as_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(full_cluster(away=1, used=0.85), tmp_path, monkeypatch) == 3


def test_what_comes_next_is_named_only_where_there_is_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ProposedPlan(Plan("c", ()))
    for plan, next_step in (
        (nothing, "and there is nothing to move; to have it noted alone: rebalancer drain 6 --apply"),
        (proposed(full_cluster(away=0, used=0.85)), "and --apply would be refused: broker 6 can't be emptied: "),
        (proposed(full_cluster(away=1, used=0.85)), "nothing has been changed; to carry it out: rebalancer drain 6"),
    ):
        monkeypatch.setattr(lifecycle, "plan_for_brokers", lambda *_, made=plan, **_now: made)
        result = CliRunner().invoke(lifecycle.drain, ["6", "--set", f"storage.tables={tmp_path / 'tables'}"])
        assert (result.exit_code, result.exception) == (0, None)
        assert next_step in result.stderr
