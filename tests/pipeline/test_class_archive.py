"""Spark starts with the classes that were archived before, where its driver is this machine's."""

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.demo.spark_classes import run_and_stop_the_pipeline
from streaming.pipeline import session
from streaming.runtime import class_archive as archives
from streaming.runtime.jars import CHECKSUMS, PRODUCT
from streaming.settings import PipelineSettings, StorageSettings

KAFKA = "org.apache.kafka.clients.consumer.internals.Fetcher"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archives, "FOLDER", tmp_path)
    monkeypatch.setattr(session, "class_path", lambda _configuration: "our.jar")
    return archives.spark_archive_path()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_driver_uses_the_archive_where_there_is_one(archive: Path, master: str) -> None:
    assert session.driver_options(master) == {"spark.driver.extraClassPath": "our.jar"}
    archive.touch()
    options = session.driver_options(master)
    assert options["spark.driver.extraClassPath"] == "our.jar"
    assert f"-XX:SharedArchiveFile={archive}" in options["spark.driver.extraJavaOptions"]


@pytest.mark.usefixtures("archive")
def test_spark_loads_nothing_of_delta() -> None:
    """Spark writes and reads no table: Delta's extension would parse each statement, and its jars are 13 MB more."""
    options = session._options(PipelineSettings(), StorageSettings())
    assert not [pair for pair in options.items() if "delta" in pair[0] or ".delta." in pair[1]]
    names = (line.split()[1] for line in CHECKSUMS.read_text().splitlines())
    of_product = [name for name in names if name.partition("/")[0] in PRODUCT]
    assert of_product
    assert not [name for name in of_product if "delta" in name or "unitycatalog" in name]


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://host:7077", "yarn"])
def test_executors_elsewhere_get_the_jars_from_the_driver(archive: Path, master: str) -> None:
    archive.touch()
    assert session.driver_options(master) == {}


def test_an_archive_of_other_jars_is_not_used(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive.touch()
    changed = tmp_path / "jars.sha256"
    changed.write_text("0000 spark/other.jar\n")
    monkeypatch.setattr(archives, "CHECKSUMS", changed)
    assert "spark.driver.extraJavaOptions" not in session.driver_options("local[2]")


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
