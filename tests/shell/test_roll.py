"""`rebalancer roll` on a simulated cluster: what it does in which order, what stops it, and what it leaves open."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from assignor_core.live import LiveCluster
from assignor_core.live_plans.demotion import at_the_end
from streaming import tables
from streaming.commands import roll as roll_module
from streaming.commands.restart_command import RestartCommand, filled
from streaming.commands.roll import roll
from streaming.control.intents import note_intent
from streaming.control.rolls import RollJournal, roll_lease
from streaming.control.wiring import journal_of
from streaming.errors import ClusterUnreachable, RefusedForSafety, RollStopped, UsageProblem
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent
from streaming.views.rolls import open_roll
from tests.control.carried import ERRORS, MB
from tests.simulated_cluster import SimulatedClient, SimulatedCluster, controller

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b"}
AWAY_MS = 5_000


class Rolled:
    """A cluster whose brokers a command, or a person, restarts; time passes whenever the roll waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.settings = settings
        self.cluster = SimulatedCluster.of(RACKS)
        rows = [(1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5, 3), (5, 1, 3)]
        self.cluster.create_topic("t", dict(enumerate(rows)), size_bytes=MB, min_insync_replicas=2)
        self.client = SimulatedClient(self.cluster, errors=ERRORS)
        self.done: list[tuple[str, int]] = []
        self.now_s = 0.0
        self.code = 0
        self.comes_back = True
        self.is_vain = False
        """Whether demotions leave the leaders where they are."""
        self.refuses: dict[str, list[Exception | str]] = {}
        self.on_sleep: Callable[[], None] = lambda: None
        monkeypatch.setattr(roll_module, "time", SimpleNamespace(sleep=self.sleep, monotonic=lambda: self.now_s))
        monkeypatch.setattr(roll_module, "_hosts", lambda _session: {broker: f"host-{broker}" for broker in RACKS})
        monkeypatch.setattr(roll_module._Session, "opened", self.opened)
        monkeypatch.setattr(roll_module._Session, "in_sync_min", lambda *_: {"t": 2, "single": 1, "alone": 1})
        monkeypatch.setattr(roll_module, "RestartCommand", self.command)
        monkeypatch.setattr("streaming.cluster.admin.quorum_leader", lambda _admin: 2)
        monkeypatch.setattr("streaming.cluster.permissions.check_may_execute", lambda _admin: None)
        monkeypatch.setattr("streaming.commands.demotion.reorder", self.reorder)

    @contextmanager
    def opened(self, settings: Settings) -> Iterator[roll_module._Session]:
        journal = RollJournal(settings.storage.tables, settings.kafka.cluster_name)
        yield roll_module._Session(settings, SimpleNamespace(), self, journal)  # type: ignore[arg-type]

    def describe(self) -> LiveCluster:
        return self.client.describe()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.cluster.advance(round(seconds * 1000))
        self.on_sleep()

    def reorder(self, settings: Settings, action: str, broker: int, _wait_s: float) -> str | None:
        if self.refuses.get(action):
            outcome = self.refuses[action].pop(0)
            if isinstance(outcome, str):
                return outcome
            raise outcome
        self.done.append((action, broker))
        intent = Intent.DEMOTE if action == "demote" else Intent.USE
        note_intent(settings.storage.tables, settings.kafka.cluster_name, broker, intent, "a test", now_ms=1)
        for key, row in list(self.cluster.contents.partitions()):
            if action == "demote" and broker in row.replicas and not self.is_vain:
                self.cluster.reassign({key: at_the_end(row.replicas, {broker})})
                self.cluster.elect_preferred([key])
        return None

    def command(self, words: tuple[str, ...]) -> Any:
        """Stops the broker that the last word names, in order."""
        self.restart(int(words[-1]))
        return SimpleNamespace(code=lambda: self.code, end=lambda: None)

    def restart(self, broker: int) -> None:
        self.done.append(("restart", broker))
        if self.code:
            return
        self.cluster.kill_broker(broker)
        controller.fence(self.cluster.contents, broker)
        if self.comes_back:
            self.cluster.plan(AWAY_MS, lambda: self.cluster.restart_broker(broker))

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(roll, arguments, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return result

    def by_command(self, *arguments: str) -> Result:
        return self.run("--yes", "--exec", "true {host} {broker}", *arguments)

    def status(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.run("--status", "--json").stdout)
        return content


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch, tables_in_memory: str) -> Rolled:
    settings = Settings.model_validate({"storage": {"tables": tables_in_memory}, "control": {"lease_ms": 3_000}})
    monkeypatch.setattr(roll_module, "settings_from", lambda *_: settings)
    journal_of(settings).make_tables()
    return Rolled(monkeypatch, settings)


def test_all_brokers_are_restarted_rack_by_rack(rolled: Rolled) -> None:
    order = [1, 4, 3, 5, 2]
    shown = rolled.run("--dry-run")
    assert [line.split()[2] for line in shown.stdout.splitlines()[1:]] == [str(broker) for broker in order]
    assert rolled.done == []
    result = rolled.by_command("--json")
    turns = [(act, broker) for broker in order for act in ("demote", "restart", "undemote")]
    assert rolled.done == turns
    assert json.loads(result.stdout) == {
        "roll_id": json.loads(result.stdout)["roll_id"], "event": "done", "brokers": order, "restarted": order,
        "broker": None, "phase": None, "margin": 0, "accepts_single": False,
    }  # fmt: skip
    assert "broker 1: runs true host-1 1" in result.stderr
    assert rolled.status() == {"roll_id": None}
    actions = {row["action"] for row in tables.read(rolled.settings.storage.tables, "audit")}
    assert actions == {"roll"}


def test_without_a_command_a_person_restarts_the_brokers(rolled: Rolled) -> None:
    def person() -> None:
        if rolled.status()["phase"] == "restarting" and len(rolled.done) % 3 == 1:
            rolled.restart(int(rolled.status()["broker"]))

    rolled.on_sleep = person
    result = rolled.run("1", "3", "--yes")
    assert [broker for act, broker in rolled.done if act == "restart"] == [1, 3]
    assert "broker 1: waits: restart the broker now" in result.stderr


def test_a_drained_or_demoted_broker_keeps_its_note(rolled: Rolled) -> None:
    root, name = rolled.settings.storage.tables, rolled.settings.kafka.cluster_name
    note_intent(root, name, 1, Intent.DEMOTE, "a person", now_ms=1)
    note_intent(root, name, 3, Intent.DRAIN, "a person", now_ms=1)
    rolled.by_command("1", "3")
    assert rolled.done == [("restart", 1), ("restart", 3)]
    intents = brokers_by_intent(TableReader(root), name)
    assert intents[Intent.DEMOTE] == {1}
    assert intents[Intent.DRAIN] == {3}


def test_a_broker_that_does_not_return_leaves_the_roll_open(rolled: Rolled) -> None:
    rolled.comes_back = False
    with pytest.raises(RollStopped, match=r"^broker 1: the broker is away, after 6\d s \(--wait\); it stays demoted$"):
        rolled.by_command("1", "4", "--wait", "1m")
    assert rolled.status() | {"roll_id": ""} == {
        "roll_id": "", "event": None, "brokers": [1, 4], "restarted": [], "phase": "away", "broker": 1,
        "detail": "the broker is away", "margin": 0, "accepts_single": False,
    }  # fmt: skip
    rolled.comes_back = True
    rolled.cluster.restart_broker(1)
    with pytest.raises(RefusedForSafety, match="of brokers 1, 4 is open; to continue it, with its --exec"):
        rolled.by_command("5")
    rolled.by_command()
    assert [broker for act, broker in rolled.done if act == "restart"] == [1, 4], "broker 1 was seen away"


class Gone(BaseException):
    """The process that rolls is gone."""


def test_a_roll_that_was_killed_keeps_its_margin_and_what_it_accepts(rolled: Rolled) -> None:
    rolled.cluster.create_topic("single", {0: (3,)}, size_bytes=MB)
    rolled.cluster.create_topic("alone", {0: (1,)}, size_bytes=MB)

    def kill() -> None:
        raise Gone

    rolled.on_sleep = kill
    with pytest.raises(Gone):
        rolled.by_command("3", "1", "--accept-single")
    rolled.on_sleep = lambda: None
    assert rolled.status()["accepts_single"] is True
    shown = rolled.run("--status").stdout
    assert "margin 0, partitions without a second replica may be offline" in shown
    with pytest.raises(RefusedForSafety, match=r"^roll \w+ is open, and --margin is 0, not 1: leave the option out"):
        rolled.by_command("--margin", "1")
    assert rolled.by_command().return_value == 0
    assert {broker for act, broker in rolled.done if act == "restart"} == {1, 3}


def test_a_roll_keeps_its_margin(rolled: Rolled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions lose their margin while the process that rolls is gone: who continues the roll waits."""
    needed = {"t": 1}
    monkeypatch.setattr(roll_module._Session, "in_sync_min", lambda *_: needed)
    rolled.code = 7
    with pytest.raises(RollStopped):
        rolled.by_command("1", "4", "--margin", "1")
    rolled.code, needed["t"] = 0, 2
    assert rolled.status()["margin"] == 1
    with pytest.raises(RefusedForSafety, match="--accept-single is not set: leave the option out"):
        rolled.by_command("--accept-single")
    with pytest.raises(RefusedForSafety, match="without margin: one more broker that fails stops their writes, after"):
        rolled.by_command("--wait", "30s")
    needed["t"] = 1
    assert rolled.by_command("--margin", "1").return_value == 0


def test_a_broker_that_is_never_safe_is_not_restarted(rolled: Rolled) -> None:
    rolled.cluster.kill_broker(5)
    rolled.cluster.advance(20_000)
    with pytest.raises(
        RefusedForSafety, match=r"^broker 1: another broker is away: broker 5, .* it was not restarted$"
    ):
        rolled.by_command("1", "--wait", "30s")
    assert rolled.done == []
    rolled.cluster.restart_broker(5)
    assert rolled.by_command("1").return_value == 0


def test_a_command_that_fails_stops_the_roll_and_an_abort_undemotes(rolled: Rolled) -> None:
    rolled.code = 7
    with pytest.raises(RollStopped, match=r"^broker 1: the command ended with 7; it stays demoted$"):
        rolled.by_command("1", "4")
    assert rolled.run("--abort").return_value == 0
    assert rolled.done == [("demote", 1), ("restart", 1), ("undemote", 1)]
    assert rolled.status() == {"roll_id": None}
    assert [rolled.run(asked).stdout for asked in ("--status", "--abort")] == ["no roll is open\n"] * 2


def test_an_abort_reaches_a_roll_that_another_process_carries_out(rolled: Rolled) -> None:
    root, name = rolled.settings.storage.tables, rolled.settings.kafka.cluster_name

    def person() -> None:
        rolled.on_sleep = lambda: None
        found = open_roll(TableReader(root), name)
        assert found is not None
        RollJournal(root, name).request_abort(found, "another person", now_ms=1)

    rolled.on_sleep = person
    result = rolled.by_command("1", "4")
    assert result.return_value == 1
    assert "was aborted" in result.stderr
    assert rolled.status() == {"roll_id": None}


def test_what_stands_in_the_way_of_a_demotion_is_waited_for(rolled: Rolled) -> None:
    rolled.refuses["demote"] = [RefusedForSafety("1 partition is being reassigned"), ClusterUnreachable("no answer")]
    result = rolled.by_command("1")
    assert "broker 1: waits: 1 partition is being reassigned" in result.stderr
    assert "broker 1: waits: no answer" in result.stderr
    rolled.refuses["demote"] = ["aborted: a person asked to stop"]
    with pytest.raises(RollStopped, match="its demote was not carried out: aborted: a person asked to stop"):
        rolled.by_command("4")


def test_a_demotion_that_brings_about_nothing_is_repeated_with_pauses_and_ends_by_the_wait(rolled: Rolled) -> None:
    rolled.is_vain = True
    with pytest.raises(RefusedForSafety, match=r"broker 1: 1 leader is still on the broker, after (9|10)"):
        rolled.by_command("1", "--wait", "90s")
    assert 2 <= rolled.done.count(("demote", 1)) <= 12
    assert ("restart", 1) not in rolled.done


def test_two_rolls_at_once_are_refused(rolled: Rolled) -> None:
    other = roll_lease(rolled.settings)
    assert other.try_acquire()
    rolled.on_sleep = other.renew
    with pytest.raises(RefusedForSafety, match="another process carries out a roll of this cluster"):
        rolled.by_command()
    rolled.on_sleep = lambda: None
    other.release()
    assert rolled.by_command("1").return_value == 0


def test_a_no_begins_nothing(rolled: Rolled) -> None:
    result = CliRunner().invoke(roll, ["1"], input="n\n", standalone_mode=False)
    assert (result.return_value, rolled.done, rolled.status()) == (3, [], {"roll_id": None})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("9",), "broker 9: is not alive, the cluster has 1, 2, 3 and 2 more"),
        (("--exec", "no-such-program {host}"), "there is no program 'no-such-program'"),
        (("--exec", "true '"), "No closing quotation"),
        (("--status", "--abort"), "only one of them can be used"),
        (("--status", "--margin", "0"), "--status: concerns the open roll as it began, leave out --margin"),
        (("--abort", "1", "--accept-single"), "--abort: .*, leave out BROKER, --accept-single"),
        (("--abort", "--exec", "true"), "--abort: .*, leave out --exec"),
    ],
)
def test_wrong_use_is_named(rolled: Rolled, arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageProblem, match=problem):
        rolled.run("--yes", *arguments)


def test_a_roll_needs_no_second_person(rolled: Rolled, monkeypatch: pytest.MonkeyPatch) -> None:
    control = rolled.settings.control.model_copy(update={"approvals": 2})
    by_two = rolled.settings.model_copy(update={"control": control})
    monkeypatch.setattr(roll_module, "settings_from", lambda *_: by_two)
    with pytest.raises(RefusedForSafety, match=r"control\.approvals is 2, and roll approves"):
        rolled.by_command()
    assert (rolled.done, rolled.status()) == ([], {"roll_id": None})


def test_what_waiting_can_not_make_safe_is_refused_at_once(rolled: Rolled) -> None:
    rolled.cluster.create_topic("single", {0: (3,)}, size_bytes=MB)
    with pytest.raises(RefusedForSafety, match="waiting would not make these restarts safe: broker 3: 1 partition"):
        rolled.by_command()
    assert "can't be restarted: 1 partition without a leader" in rolled.run("--dry-run", "3").stdout
    assert rolled.by_command("3", "--accept-single").return_value == 0


def test_a_dry_run_shows_what_the_roll_would_wait_for(rolled: Rolled) -> None:
    """Broker 5 shares no partition with broker 2, and a roll restarts no broker beside one that is away."""
    shown = rolled.run("--dry-run", "5").stdout
    assert "  1. broker 5 on host-5, rack " in shown
    assert shown.endswith("; safe now\n")
    rolled.cluster.kill_broker(2)
    controller.fence(rolled.cluster.contents, 2)
    assert rolled.run("--dry-run", "5").stdout.endswith("; waits: another broker is away: broker 2\n")
    shown = json.loads(rolled.run("--dry-run", "--json", "5").stdout)
    assert [row["stops"] for row in shown["brokers"]] == [["another broker is away: broker 2"]]


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "$(x)", "", "a\nb"])
def test_a_host_that_a_program_could_misread_is_put_into_no_command(host: str) -> None:
    with pytest.raises(RefusedForSafety, match=r"broker 7: host .* is not passed to a command"):
        filled(("ssh", "{host}"), host, 7)
    assert filled(("ssh", "{host}:{broker}{x}"), "k1.example", 7) == ("ssh", "k1.example:7{x}")


def test_a_command_ends_with_the_roll(tmp_path: Path) -> None:
    command = RestartCommand(("sleep", "300"))
    assert command.code() is None
    command.end()
    assert command.code() == -15
    with pytest.raises(RollStopped, match=r"--exec: .*Permission denied"):
        RestartCommand((str(tmp_path),))
