"""How full log dirs are, from a look of control to the table, metrics and `status`."""

from pathlib import Path

from streaming.commands.status import log_dir_lines, read_status
from streaming.control.wiring import decider_of, journal_of
from streaming.serve.samples import samples as all_samples
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.log_dirs import read_log_dirs
from tests.control.noted_cluster import NOON_MS
from tests.control.windows import write_windows
from tests.simulated_cluster import SimulatedClient, SimulatedCluster


def test_log_dirs_are_kept_as_they_were_shown_last(tmp_path: Path) -> None:
    """Without a plan, too: metrics, `status` and alerts rest on these rows."""
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})
    cluster = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(1_000_000, 2_000_000))
    cluster.create_topic("t", {0: (1, 2)}, size_bytes=250_000)
    client = SimulatedClient(cluster)
    decider = decider_of(client, journal_of(settings), settings)
    for minute in (0, 1):
        now_ms = NOON_MS + minute * settings.pipeline.window_ms
        write_windows(settings, client.describe(), end_ms=now_ms)
        decider.tick(now_ms=now_ms)
        cluster.fail_log_dir(2, 1)
        cluster.contents.brokers[1].log_dirs[1].cordoned = True
    rows = read_log_dirs(TableReader(settings.storage.tables), settings.kafka.cluster_name)
    assert [(row.broker, row.path, row.state, row.used_share) for row in rows] == [
        (1, "/disk-0", "online", 0.25),
        (1, "/disk-1", "cordoned", 0.0),
        (2, "/disk-0", "online", 0.25),
        (2, "/disk-1", "offline", None),
    ]
    assert {row.event_ms for row in rows} == {now_ms}
    status = read_status(settings, now_ms=now_ms)
    assert log_dir_lines(status) == [
        "log dir /disk-1 of broker 1 is cordoned",
        "log dir /disk-1 of broker 2 is offline",
    ]
    samples = {
        (row.name, row.labels): row.value
        for row in all_samples(read_snapshot(settings, now_ms), settings, ("", "", ""))
    }
    assert samples["log_dir_online", ("2", "/disk-1")] == 0
    assert samples["log_dir_online", ("1", "/disk-1")] == samples["log_dir_cordoned", ("1", "/disk-1")] == 1
    assert samples["log_dir_used_ratio", ("1", "/disk-0")] == 0.25
    assert ("log_dir_used_ratio", ("2", "/disk-1")) not in samples
