"""Settings that change under roles that run: as processes, on SIGHUP, and in the file that `rebalancer run` polls."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from streaming import tables
from streaming.cli import run
from streaming.commands.reloading import Reloading, RunSettings, SettingsFile, SettingsSource
from streaming.errors import RefusedForSafety
from streaming.runtime import processes
from streaming.runtime.locks import exclusive
from streaming.runtime.own_process import stopped_by_signals
from streaming.runtime.processes import free_port
from streaming.settings import Settings
from streaming.tables.object_stores import storage_options, use_object_store
from tests.waiting import DEADLINE_S, until

HANDLED = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


def settings_for(folder: Path, *names: str, **others: Any) -> dict[str, Any]:
    clusters = {name: {"kafka": {"bootstrap_servers": [f"{name}.invalid:9092"]}} for name in names}
    return {
        "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
        "log": {"format": "json"},
        **({"clusters": clusters} if names else {}),
        **others,
    }


def write(file: Path, content: object) -> None:
    """Replaces the file as a whole: no process reads a half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    os.replace(fresh, file)


class Role:
    """A role as a process, with its log."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log_file = folder / "role.log"
        self.config = folder / "rebalancer.yaml"
        command = [sys.executable, "-m", "streaming", *arguments, "--config", str(self.config)]
        self.process = processes.start(command, log=self.log_file)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log_file.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line.get("event") == name]

    def logged(self, name: str, count: int = 1) -> dict[str, Any]:
        """The event, once it has been logged so many times."""

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None, self.log_file.read_text()
            return self.events(name)[count - 1 :]

        return until(f"{name} is logged {count} times", found)[0]

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(DEADLINE_S) == 0, self.log_file.read_text()


@contextmanager
def role(folder: Path, *arguments: str) -> Iterator[Role]:
    running = Role(folder, *arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.mark.long
def test_serve_takes_and_gives_up_clusters_and_keeps_those_of_before_if_the_file_is_refused(tmp_path: Path) -> None:
    port = free_port()
    serve = {"port": port, "refresh_interval_ms": 100}
    write(tmp_path / "rebalancer.yaml", settings_for(tmp_path, "east", "west", serve=serve))
    with (
        role(tmp_path, "serve") as running,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client,
    ):
        running.logged("serve_started")

        def listed() -> dict[str, str]:
            items = client.get("/api/v1/clusters").json()["items"]
            return {row["kafka_cluster"]: row["mode"] for row in items}

        assert listed().keys() == {"east", "west"}

        new = settings_for(tmp_path, "east", "north", "south", serve=serve)
        new["clusters"]["south"]["paused"] = True
        new["clusters"]["east"]["control"] = {"mode": "observe"}
        write(running.config, new)
        running.reload()
        assert running.logged("settings_changed")["adjusted"] == ["serve"]
        assert listed() == {"east": "observe", "north": "propose", "south": "paused"}
        assert client.get("/clusters/north/api/status").json()["kafka_cluster"] == "north"
        assert client.get("/clusters/west/api/status").status_code == 404
        assert 'kafka_cluster="north"' in client.get("/metrics").text
        assert 'kafka_cluster="west"' not in client.get("/metrics").text

        for number, wrong in enumerate(
            ("clusters: {east: {", "clusters: {east: {kafka: {bootstrap: x}}}", "\n"), start=1
        ):
            write(running.config, wrong)
            running.reload()
            refused = running.logged("settings_refused", number)
            assert refused["level"] == "error"
            assert "rebalancer.yaml" in refused["error"]
            assert len(listed()) == 3

        write(running.config, new)
        running.reload()
        running.logged("settings_unchanged")
        running.end()
    assert len(running.events("serve_started")) == 1


@pytest.mark.long
def test_a_role_that_needs_other_settings_begins_anew_in_its_process(tmp_path: Path) -> None:
    """Settings of all clusters, one of them at the top: what supervises the process sees no end."""
    first, second = free_port(), free_port()
    write(tmp_path / "rebalancer.yaml", settings_for(tmp_path, serve={"port": first}))
    with role(tmp_path, "serve") as running:
        running.logged("serve_started")
        write(running.config, settings_for(tmp_path, serve={"port": second}, kafka={"cluster_name": "renamed"}))
        running.reload()
        running.logged("serve_started", 2)
        answer = httpx.get(f"http://127.0.0.1:{second}/api/status", timeout=DEADLINE_S)
        assert answer.json()["kafka_cluster"] == "renamed"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{first}/healthz", timeout=DEADLINE_S)
        running.end()
    assert [row["restarted"] for row in running.events("settings_changed")] == [["serve"]]


@pytest.mark.long
def test_a_role_of_a_paused_cluster_waits_until_the_cluster_is_continued(tmp_path: Path) -> None:
    content = settings_for(tmp_path, "east", "west")
    content["clusters"]["east"]["paused"] = True
    write(tmp_path / "rebalancer.yaml", content)
    with role(tmp_path, "collect", "--cluster", "east") as running:
        running.logged("cluster_paused")
        write(running.config, settings_for(tmp_path, "west", "north"))
        running.reload()
        assert "--cluster: found 'east', the settings know west, north" in running.logged("settings_refused")["error"]
        write(running.config, content | {"topics": {"byte_rate": "other"}})
        running.reload()
        running.logged("settings_unchanged")  # for a role that does nothing
        del content["clusters"]["east"]["paused"]
        write(running.config, content)
        running.reload()
        running.logged("settings_changed")


@pytest.fixture
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Changed(SettingsSource):
    """Settings that have changed."""

    def __init__(self) -> None:
        self.file = None

    def read(self) -> tuple[dict[str, Settings], dict[str, Settings]]:
        clusters = {"default": Settings.model_validate({"log": {"level": "debug"}})}
        return clusters, clusters


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_is_stopped_while_it_ends_to_begin_anew_ends_for_good(is_stopped: bool) -> None:
    reloading, ends = Reloading("collect"), list[int]()
    reloading.follow(Changed(), {"default": Settings()})
    signal.raise_signal(signal.SIGHUP)  # before the role has begun its work and can be asked to end
    threading.Event().wait(0.01)
    signal.signal(signal.SIGTERM, lambda number, _frame: ends.append(number))
    until("the role is asked to end", lambda: ends)
    if is_stopped:
        signal.raise_signal(signal.SIGTERM)
    assert (reloading.begins_anew, ends) == (not is_stopped, [signal.SIGTERM])
    signal.raise_signal(signal.SIGTERM)
    assert (reloading.begins_anew, len(ends)) == (False, 1 + is_stopped)


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_role_that_has_been_stopped_does_not_begin_anew(number: signal.Signals) -> None:
    """`systemctl reload` and, at once, `stop` send two signals: the settings are read while the role ends."""
    reloading, stopping = Reloading("collect"), stopped_by_signals()
    signal.raise_signal(number)
    assert stopping.is_set()
    others = threading.enumerate()
    reloading.follow(Changed(), {"default": Settings()})
    (following,) = (thread for thread in threading.enumerate() if thread not in others)
    signal.raise_signal(signal.SIGHUP)
    until("nobody asks the role to end any more", lambda: not following.is_alive())
    assert not reloading.will_begin_anew()


@pytest.mark.usefixtures("_handlers")
def test_a_stop_between_the_end_of_a_role_and_its_next_begin_is_not_lost() -> None:
    reloading, stopping = Reloading("collect"), stopped_by_signals()
    reloading.follow(Changed(), {"default": Settings()})
    signal.raise_signal(signal.SIGHUP)
    until("the role is asked to end", stopping.is_set)
    assert reloading.will_begin_anew()
    assert {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} == {signal.SIG_DFL}


@pytest.mark.long
def test_a_terminal_that_is_closed_ends_a_role_in_order(tmp_path: Path) -> None:
    """SIGHUP means that, too: a role that nobody sees any more must not go on."""
    write(tmp_path / "rebalancer.yaml", settings_for(tmp_path, serve={"port": free_port()}))
    command = [sys.executable, "-m", "streaming", "serve", "--config", str(tmp_path / "rebalancer.yaml")]
    terminal, side = os.openpty()
    log_file = tmp_path / "role.log"
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=side, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    os.close(side)
    try:
        until("serve has started", lambda: "serve_started" in log_file.read_text())
        process.send_signal(signal.SIGHUP)
        until("the settings are read", lambda: "settings_unchanged" in log_file.read_text())
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_run_takes_no_settings_whose_tables_another_run_has(tmp_path: Path) -> None:
    file = tmp_path / "rebalancer.yaml"
    write(file, settings_for(tmp_path, "east", "west"))
    settled = RunSettings(SettingsSource(file, ()))
    with settled.locked(settled._source.read()[1]):
        settled.lock()
        assert settled.reload(asked=False) is None
        before = settled.clusters
        write(file, settings_for(tmp_path, "east", "north"))
        with exclusive(str(tmp_path / "tables/clusters/north"), "run"):
            assert settled.reload(asked=True) is None
            assert settled.clusters is before
        found = settled.reload(asked=True)
        assert found is not None
        assert {role.name for role in found.ended} == {"collect-west", "control-west"}
        with exclusive(str(tmp_path / "tables/clusters/west"), "run") as is_free:
            assert is_free
        with exclusive(str(tmp_path / "tables/clusters/north"), "run") as is_free:
            assert not is_free
    with exclusive(str(tmp_path / "tables/clusters/north"), "run") as is_free:
        assert is_free


def test_a_run_whose_tables_another_run_has_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "rebalancer.yaml"
    write(file, settings_for(tmp_path, "east", "west"))
    settled = RunSettings(SettingsSource(file, ()))
    with (
        exclusive(str(tmp_path / "tables/clusters/west"), "run"),
        settled.locked(settled._source.read()[1]),
        pytest.raises(RefusedForSafety, match="uses the tables in"),
    ):
        settled.lock()


@pytest.mark.parametrize(("content", "code"), [("clusters: {east: {}}", 0), ("clusters: {east: {}, west: {}}", 2)])
def test_a_file_can_be_checked_before_it_counts(
    content: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "rebalancer.yaml", content)
    assert run(["config", "--check", "--config", str(tmp_path / "rebalancer.yaml")]) == code
    written = capsys.readouterr()
    assert ("the settings are sound: east" in written.out) == (code == 0)
    assert ("clusters east, west: kafka.bootstrap_servers" in written.err) == (code == 2)


def test_a_check_asks_the_object_store_that_the_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def opened(root: str, _name: str) -> None:
        asked.append((storage_options(root) or {}).get("aws_endpoint_url", "Amazon's own"))

    monkeypatch.setattr(tables, "open_table", opened)
    storage = {"tables": "s3://bucket/tables", "checkpoints": str(tmp_path), "s3_endpoint": "https://store.example"}
    write(tmp_path / "rebalancer.yaml", settings_for(tmp_path, "east", "west", storage=storage))
    try:
        assert run(["config", "--check", "--config", str(tmp_path / "rebalancer.yaml")]) == 0
    finally:
        use_object_store(Settings().storage)
    assert set(asked) == {"https://store.example"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "rebalancer.yaml"
    file.write_text("kafka: {cluster_name: east}\n")
    return file


def looks(watched: SettingsFile, count: int = 4) -> list[bool]:
    return [watched.has_changed() for _ in range(count)]


def test_a_change_counts_once_when_two_looks_have_found_the_same(file: Path) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    assert looks(watched) == [False] * 4
    file.write_text("kafka: {cluster_name: west}\n# more\n")
    assert looks(watched) == [False, True, False, False]


def test_a_file_that_is_being_written_has_not_changed_yet(file: Path) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    for length in range(1, 6):
        file.write_text("x" * length)
        assert not watched.has_changed()
    assert watched.has_changed()


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_file_that_is_gone_or_empty_has_not_changed(file: Path, content: str | None) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert looks(watched) == [False] * 4
    file.write_text("kafka: {cluster_name: west}\n# back\n")
    assert looks(watched) == [False, True, False, False]


def test_a_file_that_may_be_read_only_later_is_a_change_then(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`install -m 600` by root, then chown: its rights change, its time and size do not."""
    watched = SettingsFile(file, interval_s=0.0)
    file.write_text("kafka: {cluster_name: west}\n# more\n")

    def refused(_path: Path) -> bytes:
        raise PermissionError

    with monkeypatch.context() as patched:  # root, whom tests may run as, reads every file
        patched.setattr(Path, "read_bytes", refused)
        assert looks(watched) == [False] * 4
    assert looks(watched) == [True, False, False, False]


def test_a_folder_in_the_place_of_the_file_is_no_change(file: Path) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    file.unlink()
    file.mkdir()
    assert looks(watched) == [False] * 4


def test_another_time_of_the_same_content_is_no_change(file: Path) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    os.utime(file, ns=(1, 1))
    assert looks(watched) == [False] * 4


def test_what_was_read_meanwhile_is_no_change_any_more(file: Path) -> None:
    watched = SettingsFile(file, interval_s=0.0)
    file.write_text("kafka: {cluster_name: west}\n# more\n")
    watched.note_read()
    assert looks(watched) == [False] * 4


def test_a_link_to_another_file_is_a_change_as_in_a_config_map(file: Path, tmp_path: Path) -> None:
    first, second, link = tmp_path / "..1", tmp_path / "..2", tmp_path / "link"
    for folder, name in ((first, "east"), (second, "west")):
        folder.mkdir()
        (folder / "rebalancer.yaml").write_text(f"kafka: {{cluster_name: {name}}}\n")
    link.symlink_to(first)
    watched = SettingsFile(link / "rebalancer.yaml", interval_s=0.0)
    (tmp_path / "new").symlink_to(second)
    os.replace(tmp_path / "new", link)
    assert looks(watched) == [False, True, False, False]


def test_between_two_looks_and_without_a_file_nothing_changes(file: Path) -> None:
    watched = SettingsFile(file, interval_s=3_600.0)
    file.write_text("other: content\n")
    assert looks(watched) == [False] * 4
    assert looks(SettingsFile(None, interval_s=0.0)) == [False] * 4
