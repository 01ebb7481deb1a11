"""By HTTP from a skew to balance and a drain, on a simulated cluster: plan, approve, control carries out, abort."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from assignor_core.proposed_plan import ProposedPlan
from streaming.commands import acting, demotion, lifecycle
from streaming.commands.acting import keeping_plan
from streaming.control.planning import propose_live
from streaming.control.policies import policy_of_plans, relief_policy
from streaming.control.run import ControlLoop
from streaming.control.wiring import window_tables_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, UsageProblem
from streaming.runtime.own_process import os_user
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent, drained_brokers
from tests.control.windows import write_windows
from tests.serve.served import Served, refusal, state
from tests.serve.synthetic import NOW_MS
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster

TICK_MS = 1_000
TICKS_MAX = 300
ERRORS = ClientErrors(ClusterRequestFailed, ClusterUnreachable)


class Simulated:
    """Broker 1 leads six partitions of eight, each of two replicas; broker 4 leads none."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served = served
        self.cluster = SimulatedCluster.of({1: "a", 2: "b", 3: "c", 4: "d"}, network_bytes_per_sec=1_000_000_000)
        replicas = [(1, 2), (1, 3), (1, 4), (1, 2), (1, 3), (1, 4), (2, 3), (3, 2)]
        self.cluster.create_topic("t", dict(enumerate(replicas)), size_bytes=1_000)
        self.client = SimulatedClient(self.cluster, errors=ERRORS)
        write_windows(served.settings, self.client.describe(), end_ms=NOW_MS)

        @contextmanager
        def connected(_settings: Settings) -> Iterator[SimulatedClient]:
            yield self.client

        monkeypatch.setattr(acting, "live_cluster", connected)
        monkeypatch.setattr(lifecycle, "live_cluster", connected)
        monkeypatch.setattr(demotion, "live_cluster", connected)

    def carry_out(self) -> None:
        """Control ticks until nothing is open."""
        control = ControlLoop(self.client, self.served.settings, now_ms=NOW_MS + self.cluster.now_ms)
        for _ in range(TICKS_MAX):
            now_ms = NOW_MS + self.cluster.now_ms
            control.tick(now_ms=now_ms)
            if not self.served.journal.open_executions(now_ms=now_ms):
                return
            self.cluster.advance(TICK_MS)
        raise AssertionError(self.served.journal.open_executions(now_ms=NOW_MS))

    def led(self) -> dict[int, int]:
        led = dict.fromkeys((1, 2, 3, 4), 0)
        for row in self.client.describe().partitions.values():
            led[row.replicas[0]] += 1
        return led

    def held(self, broker: int) -> int:
        return sum(broker in row.replicas for row in self.client.describe().partitions.values())

    def end_of(self, answer: httpx.Response) -> str:
        shown = self.served.get(f"/api/v1/executions/{answer.json()['execution_id']}").json()
        return str(shown["phase"])


@pytest.fixture
def simulated(served: Served, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    return Simulated(served, monkeypatch)


def test_from_a_skew_to_balance(simulated: Simulated) -> None:
    served = simulated.served
    planned = served.post("plans")
    assert state(planned) == (200, "planned")
    plan_id = planned.json()["plan_id"]
    assert served.get(f"/api/v1/plans/{plan_id}").json()["movement_count"] == planned.json()["movement_count"]
    assert simulated.led()[1] == 6, "nothing moves before it is approved"
    approved = served.post(f"plans/{plan_id}/approve")
    assert state(approved) == (200, "accepted")
    simulated.carry_out()
    assert max(simulated.led().values()) <= 3
    assert simulated.end_of(approved) == "done"
    assert state(served.post(f"plans/{plan_id}/approve")) == (409, "already_ended")
    assert state(served.post(f"executions/{approved.json()['execution_id']}/abort")) == (409, "already_ended")


def test_the_plan_is_the_one_that_control_would_make(simulated: Simulated) -> None:
    """With the same limits and at the same throttle, which gives its duration."""
    settings, served = simulated.served.settings, simulated.served
    kept = served.journal.plan(served.post("plans").json()["plan_id"])
    live = simulated.client.describe()
    policy = policy_of_plans(settings, {"t"})
    windows = window_tables_of(settings)
    of_control = propose_live(simulated.client, live, windows, settings.planner, now_ms=NOW_MS, policy=policy).plan
    assert (kept.plan.plan_id, kept.plan.waves) == (of_control.plan_id, of_control.waves)


def test_an_execution_that_is_aborted_before_control_takes_it_moves_nothing(simulated: Simulated) -> None:
    served = simulated.served
    approved = served.post(f"plans/{served.post('plans').json()['plan_id']}/approve")
    assert state(served.post(f"executions/{approved.json()['execution_id']}/abort")) == (200, "abort_asked")
    simulated.carry_out()
    assert (simulated.end_of(approved), simulated.led()[1]) == ("aborted", 6)


@pytest.mark.long
def test_a_broker_is_drained_and_stays_noted(simulated: Simulated) -> None:
    served = simulated.served
    looked = served.post("brokers/1/drain")
    assert state(looked) == (200, "planned")
    drained = drained_brokers(TableReader(served.settings.storage.tables), "test")
    assert (drained, served.journal.open_executions(now_ms=NOW_MS)) == (frozenset(), [])
    carried = served.post("brokers/1/drain", json={"carry_out": True})
    assert state(carried) == (200, "accepted")
    simulated.carry_out()
    assert (simulated.end_of(carried), simulated.held(1)) == ("done", 0)
    assert drained_brokers(TableReader(served.settings.storage.tables), "test") == {1}
    again = served.post(f"plans/{carried.json()['plan_id']}/approve")
    assert state(again) == (409, "already_ended")
    assert state(served.post("brokers/1/undrain")) == (200, "undrained")


@pytest.mark.long
def test_a_demoted_broker_leads_nothing_until_its_demotion_ends(simulated: Simulated) -> None:
    """Control elects nobody back meanwhile, and no plan lets broker 1 lead."""
    served, before = simulated.served, simulated.client.describe().partitions
    assert state(served.post("brokers/1/demote")) == (200, "planned")
    assert simulated.led()[1] == 6, "nothing changes before it is approved"
    carried = served.post("brokers/1/demote", json={"carry_out": True})
    assert state(carried) == (200, "accepted")
    simulated.carry_out()
    live = simulated.client.describe()
    assert (simulated.end_of(carried), simulated.led()[1]) == ("done", 0)
    assert {row.leader for row in live.partitions.values()} == {2, 3, 4}
    assert {key: set(row.replicas) for key, row in live.partitions.items()} == {
        key: set(row.replicas) for key, row in before.items()
    }
    assert state(served.post("brokers/1/demote", json={"carry_out": True})) == (200, "demoted")
    planned = served.post("plans")
    if state(planned) == (200, "planned"):
        movements = served.journal.plan(planned.json()["plan_id"]).plan.movements
        assert not any(row.new_replicas[0] == 1 for row in movements)
        assert not any((1 in row.new_replicas) != (1 in row.old_replicas) for row in movements)
    assert refusal(served.post("brokers/1/add"))[0] == 400
    back = served.post("brokers/1/undemote", json={"carry_out": True})
    assert state(back) == (200, "accepted")
    simulated.carry_out()
    assert simulated.end_of(back) == "done"
    assert {key: (row.replicas, row.leader) for key, row in simulated.client.describe().partitions.items()} == {
        key: (row.replicas, row.leader) for key, row in before.items()
    }
    assert brokers_by_intent(TableReader(served.settings.storage.tables), "test")[Intent.DEMOTE] == frozenset()
    assert state(served.post("brokers/1/undemote")) == (200, "nothing_to_move")


def test_a_broker_that_nobody_can_stand_in_for_is_not_demoted(simulated: Simulated) -> None:
    simulated.cluster.kill_broker(4)
    simulated.cluster.advance(120_000)
    status, detail = refusal(simulated.served.post("brokers/1/demote", json={"carry_out": True}))
    assert status == 409
    assert detail == ("broker 1 can't be demoted: 2 partitions have no other replica in sync that may lead: t-2, t-5")
    assert (
        brokers_by_intent(TableReader(simulated.served.settings.storage.tables), "test")[Intent.DEMOTE] == frozenset()
    )


@pytest.mark.long
def test_a_broker_gets_its_share_and_its_drain_ends(simulated: Simulated) -> None:
    """Broker 1 was emptied and is noted for drain: only `add` fills it again."""
    served = simulated.served
    served.post("brokers/1/drain", json={"carry_out": True})
    simulated.carry_out()
    assert simulated.held(1) == 0
    looked = served.post("brokers/1/add")
    assert state(looked) == (200, "planned")
    assert drained_brokers(TableReader(served.settings.storage.tables), "test") == {1}
    carried = served.post("brokers/1/add", json={"carry_out": True})
    assert state(carried) == (200, "accepted")
    simulated.carry_out()
    assert simulated.end_of(carried) == "done"
    assert simulated.held(1) > 0
    assert drained_brokers(TableReader(served.settings.storage.tables), "test") == frozenset()
    assert [row["action"] for row in served.acts() if row["stage"] == "ended"] == ["drain", "add", "add"]
    assert refusal(served.post("brokers/9/add"))[0] == 400


def test_a_drain_that_is_planned_at_the_command_line_is_in_the_audit_as_one_by_http(simulated: Simulated) -> None:
    served = simulated.served
    settings = served.settings

    def plan_drain(broker: int) -> ProposedPlan:
        policy = relief_policy(frozenset({broker}), drain=True)
        keep = keeping_plan(settings, "drain", str(broker), now_ms=NOW_MS)
        return lifecycle.plan_for_brokers(settings, (broker,), policy, keep=keep, now_ms=NOW_MS)

    by_command = plan_drain(1).plan
    assert served.journal.plan(by_command.plan_id).plan == by_command
    assert state(served.post("brokers/1/drain")) == (200, "planned")
    ended = sorted((row for row in served.acts() if row["stage"] == "ended"), key=lambda row: row["signed_in_by"])
    own, by_http = ended
    shown = ("action", "target", "state", "detail")
    assert [own[name] for name in shown] == [by_http[name] for name in shown]
    assert (own["actor"], own["signed_in_by"]) == (os_user(), "command line")
    assert json.loads(own["answer_json"])["plan_id"] == by_command.plan_id
    with pytest.raises(UsageProblem):
        plan_drain(9)
    assert len(served.acts()) == 4, "nothing was stored"


def test_a_broker_that_is_not_there_is_not_drained(simulated: Simulated) -> None:
    status, detail = refusal(simulated.served.post("brokers/9/drain"))
    assert (status, detail) == (400, "broker 9: is not there, allowed are 1, 2, 3, 4")


def test_a_broker_whose_replicas_fit_nowhere_else_is_not_noted(simulated: Simulated) -> None:
    """Each partition of five has a replica on every broker: there is no other place."""
    served = simulated.served
    simulated.cluster.create_topic("u", dict.fromkeys(range(5), (1, 2, 3, 4)), size_bytes=1_000)
    write_windows(served.settings, simulated.client.describe(), end_ms=NOW_MS + 60_000)
    answer = served.post("brokers/1/drain", json={"carry_out": True})
    assert state(answer) == (409, "can_not_be_emptied")
    assert drained_brokers(TableReader(served.settings.storage.tables), "test") == frozenset()
    assert served.journal.open_executions(now_ms=NOW_MS) == []


@pytest.mark.long
def test_when_two_approve_different_plans_one_is_carried_out_after_the_other(simulated: Simulated) -> None:
    served = simulated.served
    first = served.post(f"plans/{served.post('plans').json()['plan_id']}/approve")
    second = served.post("brokers/1/drain", json={"carry_out": True})
    assert f"after execution {first.json()['execution_id']}" in second.json()["detail"]
    simulated.carry_out()
    ends = {simulated.end_of(first), simulated.end_of(second)}
    assert ends <= {"done", "refused"}, "the second is refused if the first has moved what it rests on"
