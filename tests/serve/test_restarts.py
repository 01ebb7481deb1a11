"""Restart checks by HTTP: who may ask, how often the cluster is looked at, and what a look that fails answers."""

from pathlib import Path

import pytest

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.restart import RestartCheck, restart_check
from assignor_core.roll import RollEvent, RollPolicy
from streaming.commands.acting import JournalActions
from streaming.control.rolls import RollJournal
from streaming.errors import ClusterUnreachable, UsageProblem
from streaming.runtime.accounts import Role
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.read_sources import AGE_MAX_MS, KNOWN_MAX, RestartChecks
from tests.serve.asking import Acted, ask
from tests.serve.served import Served

LIVE = LiveCluster("c", {1: None, 2: None}, {("t", 0): LivePartition((1,), 1, (1,))})


class Looked(Acted):
    """Notes at which brokers somebody looked."""

    def __init__(self) -> None:
        self.looked: list[int] = []
        self.fails: Exception | None = None

    def restart_check(self, broker: int) -> RestartCheck:
        self.looked.append(broker)
        if self.fails is not None:
            raise self.fails
        return restart_check(broker, LIVE, {"t": 1})


def test_a_viewer_reads_a_check_and_nobody_else_does(tmp_path: Path, tables_in_memory: str) -> None:
    served, acts = Served(tmp_path, tables_in_memory), Looked()
    served.app = served.application(acts)
    path = "/api/v1/brokers/1/restart-check"
    assert served.get(path, role=None).status_code == 401
    assert acts.looked == [], "who may not ask costs no look"
    answer = served.get(path, role=Role.VIEWER)
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["broker"], shown["is_safe"], shown["single"]) == (1, False, {"count": 1, "partitions": [["t", 0]]})
    assert shown["stops"] == ["1 partition without a leader: no other replica is in sync"]
    assert served.get(f"{path}?accept_single=true").json()["is_safe"] is True
    assert acts.looked == [1], "one look serves both"
    assert served.get(f"{path}?accept_single=yes").status_code == 400
    acts.fails = UsageProblem("broker 9: the cluster has no such broker, it has 1, 2")
    assert served.get("/api/v1/brokers/9/restart-check").status_code == 404
    acts.fails = ClusterUnreachable("no answer")
    assert served.get("/api/v1/brokers/2/restart-check").status_code == 503


def test_the_open_roll_is_shown_with_what_it_keeps_to(tmp_path: Path, tables_in_memory: str) -> None:
    served = Served(tmp_path, tables_in_memory)
    assert served.get("/api/v1/roll").json() == {"roll": None}
    journal = RollJournal(tables_in_memory, served.settings.kafka.cluster_name)
    begun = journal.begin((2, 1), "a person", RollPolicy(margin=1, accepts_single=True), now_ms=1)
    roll = journal.write(begun, RollEvent.DEMOTING, "its leadership goes", now_ms=2)
    assert served.get("/api/v1/roll").json()["roll"] == {
        "roll_id": begun.roll_id, "event": None, "brokers": [2, 1], "restarted": [], "broker": 2, "phase": "demoting",
        "margin": 1, "accepts_single": True, "event_ms": 2, "detail": "its leadership goes",
    }  # fmt: skip
    journal.write(roll, RollEvent.ABORTED, "", now_ms=3)
    assert served.get("/api/v1/roll").json() == {"roll": None}


def test_without_a_way_to_sign_in_nobody_can_ask(tmp_path: Path, tables_in_memory: str) -> None:
    app = Served(tmp_path, tables_in_memory, tokens_file=None).application(Looked())
    assert ask(app, "GET", "/api/v1/brokers/1/restart-check").status_code == 403


def test_a_look_is_used_for_some_seconds_and_few_are_kept() -> None:
    acts, now_ms = Looked(), [0]
    checks = RestartChecks(acts.restart_check, lambda: now_ms[0])
    for at_ms in (0, AGE_MAX_MS - 1, AGE_MAX_MS, 1):
        now_ms[0] = at_ms
        checks.of(1)
    assert acts.looked == [1, 1, 1], "also once the clock was set back"
    for broker in range(KNOWN_MAX + 1):
        checks.of(broker)
    checks.of(1)
    assert acts.looked[-1] == 1
    acts.fails = ClusterUnreachable("no answer")
    with pytest.raises(ApiProblem):
        checks.of(2_000)


def test_serve_asks_the_cluster_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.commands.restart_check.checked", lambda _, broker: restart_check(broker, LIVE, {}))
    settings = Served(tmp_path, str(tmp_path / "tables")).settings
    assert JournalActions(settings).restart_check(2).replicas == 0
