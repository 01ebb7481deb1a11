"""Spark's session: the classes that it starts with, its local files, checkpoints on S3, and what it refuses."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from streaming.demo.spark_classes import run_and_stop_the_pipeline
from streaming.errors import SetUpIncomplete, UsageProblem
from streaming.pipeline import session as sessions
from streaming.pipeline.session import hadoop_options
from streaming.runtime import class_archive as archives
from streaming.runtime.jars import CHECKSUMS, PRODUCT
from streaming.settings import PipelineSettings, StorageSettings
from tests.pipeline.test_windows import session
from tests.waiting import DEADLINE_S

__all__ = ["session"]  # the fixture

KAFKA = "org.apache.kafka.clients.consumer.internals.Fetcher"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archives, "FOLDER", tmp_path)
    monkeypatch.setattr(sessions, "class_path", lambda _configuration: "our.jar")
    return archives.spark_archive_path()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_driver_uses_the_archive_where_there_is_one(archive: Path, master: str) -> None:
    assert sessions.driver_options(master) == {"spark.driver.extraClassPath": "our.jar"}
    archive.touch()
    options = sessions.driver_options(master)
    assert options["spark.driver.extraClassPath"] == "our.jar"
    assert f"-XX:SharedArchiveFile={archive}" in options["spark.driver.extraJavaOptions"]


@pytest.mark.usefixtures("archive")
def test_spark_loads_nothing_of_delta() -> None:
    """Spark writes and reads no table: Delta's extension would parse each statement, and its jars are 13 MB more."""
    options = sessions._options(PipelineSettings(), StorageSettings())
    assert not [pair for pair in options.items() if "delta" in pair[0] or ".delta." in pair[1]]
    names = (line.split()[1] for line in CHECKSUMS.read_text().splitlines())
    of_product = [name for name in names if name.partition("/")[0] in PRODUCT]
    assert of_product
    assert not [name for name in of_product if "delta" in name or "unitycatalog" in name]


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://host:7077", "yarn"])
def test_executors_elsewhere_get_the_jars_from_the_driver(archive: Path, master: str) -> None:
    archive.touch()
    assert sessions.driver_options(master) == {}


def test_an_archive_of_other_jars_is_not_used(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive.touch()
    changed = tmp_path / "jars.sha256"
    changed.write_text("0000 spark/other.jar\n")
    monkeypatch.setattr(archives, "CHECKSUMS", changed)
    assert "spark.driver.extraJavaOptions" not in sessions.driver_options("local[2]")


def test_a_folder_that_can_not_be_written_is_a_line_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(archives, "FOLDER", tmp_path / "file" / "below")
    assert archives.make_if_possible("Spark", archives.spark_archive_path, run_and_stop_the_pipeline) == 0
    assert "not archived" in capsys.readouterr().out


def test_an_archive_is_made_once_and_replaces_that_of_other_jars(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, of_brokers = tmp_path / "spark-old.jsa", tmp_path / "broker-of-these-jars.jsa"
    old.touch()
    of_brokers.touch()
    made: list[str] = []

    def program(java_options: tuple[str, ...], scratch: Path) -> None:
        file = Path(java_options[0].partition("=")[2])
        assert file.parent == scratch
        made.append(java_options[0])
        file.touch(mode=0o600)  # as a program makes it that keeps its files to itself

    assert archives.options(archive) == ()
    for _ in range(2):
        assert archives.make_if_possible("Spark", lambda: archive, program) == 0
    assert [made[0].partition("=")[0]] == ["-XX:ArchiveClassesAtExit"] * len(made)
    assert sorted(tmp_path.iterdir()) == sorted([archive, of_brokers])
    assert archive.stat().st_mode & 0o777 == 0o644
    assert archives.options(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    assert capsys.readouterr().out.count("archived, so that they load sooner") == 1


@pytest.mark.spark
def test_java_takes_sparks_classes_from_the_archive(tmp_path: Path) -> None:
    if not archives.spark_archive_path().is_file():
        pytest.skip("the set-up has made no archive here")
    loaded = tmp_path / "classes"
    options = f"-XX:+UseSerialGC -Xlog:class+load:file={loaded}"  # beside those of the archive
    script = "from streaming.pipeline.session import build_session; from streaming.settings import PipelineSettings\n"
    script += f"session = build_session(PipelineSettings(driver_java_options={options!r}))\n"
    script += f"session.sparkContext._jvm.Thread.currentThread().getContextClassLoader().loadClass({KAFKA!r})\n"
    script += "session.stop()"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=300)
    lines = loaded.read_text().splitlines()
    spark = [line for line in lines if " org.apache.spark." in line]
    assert sum("shared objects file" in line for line in spark) > len(spark) / 2
    (reader,) = (line for line in lines if f" {KAFKA} source:" in line)
    assert "shared objects file" in reader, "the archive was made without a look at a topic"


HOLDER = """
import sys
from streaming.pipeline.session import scratch_folder
(scratch_folder() / "state").write_text("rows")
print(scratch_folder(), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(below: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a folder of its own, until its standard input is closed."""
    environment = {**os.environ, "TMPDIR": str(below)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.mark.long
def test_a_process_that_ends_removes_its_folder(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, folder):
        assert folder.parent == tmp_path
        assert (folder / "state").exists()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_folders_of_killed_processes_go_and_those_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_ours = tmp_path / "not-ours"
    not_ours.mkdir()
    (tmp_path / f"{sessions.SCRATCH_PREFIX}link").symlink_to(not_ours)
    (tmp_path / f"{sessions.SCRATCH_PREFIX}file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with holder(tmp_path) as (_, living), holder(tmp_path) as (killed, abandoned):
        killed.kill()
        killed.wait(timeout=DEADLINE_S)
        assert (abandoned / "state").exists()
        own = sessions.scratch_folder.__wrapped__()
        assert not abandoned.exists()
        assert (living / "state").exists()
        assert own not in (living, abandoned)
    assert list(not_ours.iterdir()) == []
    assert (tmp_path / f"{sessions.SCRATCH_PREFIX}file").exists()


def test_a_folder_that_another_process_takes_for_abandoned_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    make = tempfile.mkdtemp
    with ExitStack() as others:

        def made_and_taken(**where: str) -> str:
            folder: str = make(**where)
            made.append(Path(folder))
            if len(made) == 1:
                lock = sessions._locked(Path(folder))
                assert lock is not None
                others.callback(os.close, lock)
            return folder

        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(tempfile, "mkdtemp", made_and_taken)
        own = sessions.scratch_folder.__wrapped__()
    assert own == made[-1]
    assert len(made) == 2


def test_a_temporary_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(SetUpIncomplete, match=r"local files below TMPDIR or /tmp: .*Not a directory"):
        sessions.scratch_folder.__wrapped__()


SECRETS = {"AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": "the-secret", "AWS_SESSION_TOKEN": "the-token"}
PREFIX = "spark.hadoop.fs.s3a."


def test_a_session_without_checkpoints_on_s3_has_none() -> None:
    assert hadoop_options(StorageSettings(tables="s3://bucket/tables"), SECRETS) == {}


def test_credentials_are_left_to_awss_own_chain() -> None:
    options = hadoop_options(StorageSettings(checkpoints="s3://bucket/checkpoints"), SECRETS)
    assert options[f"{PREFIX}aws.credentials.provider"].endswith(".DefaultCredentialsProvider")
    assert not set(SECRETS.values()) & set(options.values())
    assert not {f"{PREFIX}endpoint", f"{PREFIX}endpoint.region"} & options.keys()


@pytest.mark.parametrize(
    ("set_to", "environment", "region"),
    [("eu-west-1", {"AWS_REGION": "us-east-2"}, "eu-west-1"), (None, {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2")],
)
def test_region_and_endpoint_are_those_of_delta_rs(
    set_to: str | None, environment: dict[str, str], region: str
) -> None:
    storage = StorageSettings(checkpoints="s3a://bucket/checkpoints", s3_region=set_to)
    options = hadoop_options(storage, environment | {"AWS_ENDPOINT_URL": "https://store.example:9000"})
    assert options[f"{PREFIX}endpoint.region"] == region
    assert options[f"{PREFIX}endpoint"] == "https://store.example:9000"
    assert options[f"{PREFIX}path.style.access"] == "true"


def test_an_unencrypted_store_elsewhere_is_refused() -> None:
    with pytest.raises(UsageProblem, match="unencrypted"):
        hadoop_options(StorageSettings(checkpoints="s3://b/c", s3_endpoint="http://store.example"), {})


@pytest.mark.spark
def test_workers_take_pyspark_from_where_the_driver_has_it(session: SparkSession) -> None:
    """What they would find first are sources in an archive, which Python compiles anew at each start."""

    def place(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert session.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        *(
            ({"master": name}, r"pipeline\.master: .* is no Spark master")
            for name in ("bogus", "local[many]", "local[2")
        ),
        ({"master": "http://host"}, r"pipeline\.master: .* is no Spark master"),
        ({"extra_jars": ["/gone.jar"]}, r"^pipeline\.extra_jars: .*gone\.jar is not a file$"),
    ],
)
def test_what_spark_can_not_start_with_is_named(pipeline: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        sessions.build_session(PipelineSettings.model_validate(pipeline))
