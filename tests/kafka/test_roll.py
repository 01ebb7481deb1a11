"""`rebalancer roll` on five brokers in three racks, under a producer: killed in between, and one broker is slow.

What stops a roll, and how it continues: `tests/shell/test_roll.py`, on a simulated cluster.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.cluster.admin import Cluster, broker_hosts, quorum_leader
from streaming.cluster.clients import admin_client
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import KafkaSettings, Settings
from streaming.tables import TableReader
from streaming.views.intents import Intent, brokers_by_intent
from tests.commands import Process, finish, start
from tests.kafka.writing import Writer
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

DONE, REFUSED = 0, 3
PARTITIONS = 16
ROWS = ([1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 3], [5, 1, 3])
SLOW_S = 15.0
ROLL_DEADLINE_S = 600.0
"""Most time for a command that restarts several brokers."""
LEASE_MS = 3_000
Placement = dict[tuple[str, int], tuple[tuple[int, ...], int]]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    # The kernel would end a broker with the thread that has started it, and a thread restarts brokers here.
    with EmbeddedCluster(tmp_path_factory.mktemp("five"), broker_count=5, orphans_allowed=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    assignments = {number: ROWS[number % len(ROWS)] for number in range(PARTITIONS)}
    client.create_topics({"t": {"assignments": assignments, "configs": {"min.insync.replicas": "2"}}})
    wait_until_known(client, ["t"])
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path) -> Settings:
    settings = Settings.model_validate(
        {
            "kafka": {"cluster_name": "five", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "control": {"mode": "observe", "lease_ms": LEASE_MS},
        }
    )
    journal_of(settings).make_tables()
    until("all replicas are in sync", lambda: is_whole(admin))
    return settings


class Restarter:
    """Restarts the brokers that files in a folder name, one after the other, as whoever is told by `--exec` would."""

    def __init__(self, brokers: EmbeddedCluster, folder: Path, *, slow: int) -> None:
        self._brokers, self._folder, self._slow = brokers, folder, slow
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.restarted: list[int] = []
        folder.mkdir()

    @property
    def command(self) -> str:
        return f"touch {self._folder}/{{broker}}"

    def __enter__(self) -> "Restarter":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(0.1):
            for file in sorted(self._folder.iterdir()):
                broker = int(file.name)
                file.unlink()
                self.restarted.append(broker)
                self._brokers.stop_broker(broker)
                if broker == self._slow:
                    time.sleep(SLOW_S)
                self._brokers.start_broker(broker)


class Commands:
    """Starts commands with the settings of a test; those that still run at its end are killed."""

    def __init__(self, own: Settings, folder: Path) -> None:
        self._own, self._folder = own, folder
        self._started: list[Process] = []

    def start(self, *arguments: str) -> Process:
        self._started.append(start(self._own, self._folder, *arguments))
        return self._started[-1]

    def kill(self, process: Process) -> None:
        process.kill()
        _, errors = process.communicate()
        print(errors)

    def end(self) -> None:
        for process in self._started:
            if process.returncode is None:
                self.kill(process)


@pytest.fixture
def commands(own: Settings, tmp_path: Path) -> Iterator[Commands]:
    made = Commands(own, tmp_path)
    yield made
    made.end()


def ended(process: Process) -> tuple[int, str, str]:
    code, output, errors = finish(process, ROLL_DEADLINE_S)
    print(errors)
    return code, output, errors


def placement(admin: KafkaAdminClient) -> Placement:
    """Replicas and leader of each partition of the test's topic."""
    rows = Cluster(admin).describe(["t"]).partitions
    return {key: (row.replicas, row.leader) for key, row in rows.items()}


def is_whole(admin: KafkaAdminClient) -> bool:
    with suppress(*RETRIED_ERRORS):
        live = Cluster(admin).describe()
        rows = live.partitions.values()
        return len(live.broker_racks) == 5 and all(len(row.isr) == len(row.replicas) for row in rows)
    return False


def until_led(admin: KafkaAdminClient, before: Placement) -> None:
    """Until replicas and leaders are those of before; a client that still asks a broker of before asks again."""

    def is_led() -> bool:
        with suppress(*RETRIED_ERRORS):
            return placement(admin) == before
        return False

    until("all is led as before", is_led)


def demoted(own: Settings) -> frozenset[int]:
    return brokers_by_intent(TableReader(own.storage.tables), own.kafka.cluster_name)[Intent.DEMOTE]


def wait_until_preferred(admin: KafkaAdminClient) -> Placement:
    cluster = Cluster(admin)

    def is_preferred() -> bool:
        with suppress(*RETRIED_ERRORS):
            rows = cluster.describe(["t"]).partitions
            cluster.elect_preferred(key for key, row in rows.items() if row.leader != row.replicas[0])
            return all(row.leader == row.replicas[0] for row in rows.values())
        return False

    until("preferred replicas lead", is_preferred)
    return placement(admin)


def test_five_brokers_are_rolled_though_roll_and_control_are_killed_and_one_broker_is_slow(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, commands: Commands, tmp_path: Path
) -> None:
    before = wait_until_preferred(admin)
    leader = quorum_leader(admin)
    assert broker_hosts(admin) == dict.fromkeys(range(1, 6), "127.0.0.1")
    with (
        Writer(brokers.bootstrap_servers, "t", PARTITIONS) as writer,
        Restarter(brokers, tmp_path / "asked", slow=3) as restarter,
    ):
        first = commands.start("roll", "--yes", "--exec", restarter.command)
        until("two brokers are restarted", lambda: len(restarter.restarted) == 2 or first.poll() is not None)
        refused = commands.start("roll", "--yes", "--exec", restarter.command)
        code, _, errors = ended(refused)
        assert (code, "another process carries out a roll of this cluster" in errors) == (REFUSED, True), errors
        commands.kill(first)
        control = commands.start("control")
        second = commands.start("roll", "--yes", "--json", "--exec", restarter.command)
        until("one more broker is restarted", lambda: len(set(restarter.restarted)) >= 3 or second.poll() is not None)
        commands.kill(control)
        code, output, errors = ended(second)
        assert code == DONE, errors
    assert json.loads(output)["event"] == "done"
    assert sorted(set(restarter.restarted)) == [1, 2, 3, 4, 5]
    racks = [(broker - 1) % 3 for broker in dict.fromkeys(restarter.restarted)]
    assert len([place for place, rack in enumerate(racks) if racks.index(rack) == place]) == 3
    assert all(racks[place] == racks[place - 1] or racks.index(racks[place]) == place for place in range(1, 5)), racks
    assert restarter.restarted[-1] == leader, "the controller is the last one"
    assert demoted(own) == frozenset()
    until_led(admin, before)
    assert writer.acknowledged.total() > 0
    assert writer.lost() == {}
