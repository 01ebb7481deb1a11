"""What guards the pipeline's checkpoints on S3, without Spark: the files read and written there, and the lease."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.commands.check import _pipelines_storage
from streaming.control.lease import Lease
from streaming.errors import RefusedForSafety, TableUnavailable
from streaming.pipeline import guards
from streaming.pipeline.checkpoints import CheckpointFiles
from streaming.pipeline.guards import offsets_by_query, only_pipeline
from streaming.settings import Settings, StorageSettings
from streaming.tables.object_stores import use_object_store
from tests.s3 import BUCKET, CREDENTIALS

pytestmark = pytest.mark.long

IDS = {"rebalancer.byte-rate": "a", "rebalancer.consumer-lag": "b"}
LEASE_MS = 600_000


def lease_on(checkpoints: str) -> Lease:
    return Lease(checkpoints, "pipeline", LEASE_MS)


@pytest.fixture
def checkpoints(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix of the test's own. Without the proxy: delta-rs lists files while no thread of this process can run."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{uuid.uuid4().hex}/checkpoints"
    use_object_store(StorageSettings(checkpoints=place, s3_endpoint=s3_url))
    yield place
    use_object_store(StorageSettings())


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "folder" else request.getfixturevalue("checkpoints")


def test_files_of_checkpoints_are_read_written_and_listed_alike(place: str) -> None:
    files = CheckpointFiles(place)
    with pytest.raises(FileNotFoundError):
        files.read("notes.json")
    assert files.below("byte_rate").numbers("offsets") == []
    for text in ("first", "second, with ü"):
        files.write("notes.json", text)
        assert files.read("notes.json") == text
    offsets = files.below("byte_rate").below("offsets")
    for batch in (9, 10):
        offsets.write(str(batch), f'v1\n{{}}\n{{"t":{{"0":{batch}}}}}')
    offsets.write(".11.tmp", "of a batch that was killed")
    assert sorted(files.below("byte_rate").numbers("offsets")) == [9, 10]
    assert offsets_by_query(place)["byte_rate"] == {("t", "0"): 10}


def test_a_store_that_is_not_reached_is_named_in_one_line(checkpoints: str) -> None:
    use_object_store(StorageSettings(checkpoints=checkpoints, s3_endpoint="http://127.0.0.1:9"))
    with pytest.raises(TableUnavailable, match=r"fingerprint\.json can't be read: .*S3") as refused:
        CheckpointFiles(checkpoints).read("fingerprint.json")
    assert "\n" not in str(refused.value)


def test_one_pipeline_at_a_time(checkpoints: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "PATIENCE_S", 0.0)
    with only_pipeline(checkpoints, lease_on) as still_ours:
        still_ours()
        with (
            pytest.raises(RefusedForSafety, match="another pipeline is running on the checkpoints in s3:"),
            only_pipeline(checkpoints, lease_on),
        ):
            pass
        still_ours()
    with only_pipeline(checkpoints, lease_on) as still_ours:  # given back at the end
        still_ours()


def test_a_pipeline_that_was_taken_over_learns_of_it(checkpoints: str) -> None:
    leases: list[Lease] = []

    def noted(place: str) -> Lease:
        leases.append(lease_on(place))
        return leases[-1]

    with only_pipeline(checkpoints, noted) as still_ours:
        later = [0]
        other = Lease(checkpoints, "pipeline", LEASE_MS, clock=lambda: later[0])
        assert not other.try_acquire()
        later[0] += 2 * LEASE_MS
        assert other.try_acquire()
        with pytest.raises(RefusedForSafety):
            leases[0].renew()
        with pytest.raises(RefusedForSafety, match="another pipeline has taken over"):
            still_ours()


def test_told_to_stop_it_waits_for_no_lease(checkpoints: str) -> None:
    stopping = threading.Event()
    stopping.set()
    with only_pipeline(checkpoints, lease_on):
        refused = pytest.raises(RefusedForSafety, match="another pipeline")
        with refused, only_pipeline(checkpoints, lease_on, stopping):
            pass


def findings(**storage: str | None) -> list[tuple[bool | None, str]]:
    settings = Settings.model_validate({"storage": storage})
    return [(finding.passed, finding.detail) for finding in _pipelines_storage(settings)]


def test_check_names_what_spark_can_write(
    checkpoints: str, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(tables="data/tables", checkpoints="data/checkpoints") == []
    assert findings(tables=f"s3://{BUCKET}/tables") == [(True, "tables without Spark, checkpoints in data/checkpoints")]
    ((passed, detail),) = findings(tables=f"s3://{BUCKET}/tables", checkpoints="gs://b/checkpoints")
    assert not passed
    assert "no file system for it" in detail
    monkeypatch.setenv("REBALANCER_JARS", str(tmp_path))
    ((passed, detail),) = findings(checkpoints=checkpoints, s3_endpoint=s3_url)
    assert not passed
    assert "run `python -m streaming.runtime.jars s3`" in detail
