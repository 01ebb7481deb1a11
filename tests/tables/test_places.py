"""A folder is one place however a setting spells it; of a store each slip that would lose a commit is refused."""

from pathlib import Path

import pytest

from streaming import tables
from streaming.errors import UsageProblem
from streaming.pipeline.checkpoints import CheckpointFiles
from streaming.runtime.locks import exclusive
from streaming.settings import StorageSettings
from streaming.tables.object_stores import s3_options, storage_options, use_object_store
from streaming.tables.places import local_folder
from tests.tables.test_stores import START_MS, add, brokers, intent

SPELLINGS = [
    ("file://{}/a%20b", "a b"),
    ("file://{}/a b", "a b"),
    ("file://localhost{}/t%C3%A4glich", "t\u00e4glich"),
    ("file:{}/100%25", "100%"),
    ("{}/100%", "100%"),
    ("{}/what? #1", "what? #1"),
]


@pytest.mark.parametrize(("spelled", "name"), SPELLINGS)
def test_all_parts_find_the_same_folder(tmp_path: Path, spelled: str, name: str) -> None:
    place, folder = spelled.format(tmp_path), tmp_path / name
    with exclusive(place, "tables") as is_ours, exclusive(str(folder), "tables") as is_ours_again:
        assert (is_ours, is_ours_again) == (True, False)
    assert add(place, 0, intent(1, START_MS))
    assert add(str(folder), 1, intent(2, START_MS))
    assert brokers(place) == brokers(str(folder)) == [1, 2]
    reader = tables.TableReader(place)
    state = reader.state("broker_intent")
    assert state is not None
    assert state.files == 2
    checkpoint = CheckpointFiles(place).below("rejects")
    checkpoint.write("note", "here")
    assert checkpoint.place == str(folder / "rejects")
    scheme = "file://" if spelled.startswith("file:") else ""
    assert checkpoint.for_spark == f"{scheme}{folder}/rejects", "Spark reads no escapes"
    assert (folder / "rejects" / "note").read_text() == "here"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("place", ["file:///data?x=1", "file:///data#x", "file://host/data", "file:////data"])
def test_a_uri_that_names_no_folder_is_refused(place: str) -> None:
    with pytest.raises(UsageProblem, match="names no folder of this machine"):
        local_folder(place)


def test_a_relative_path_with_a_colon_is_no_uri_to_spark() -> None:
    assert CheckpointFiles("./a:b").below("rejects").for_spark == "a:b/rejects"


def test_what_is_not_safe_is_refused_before_anything_is_sent() -> None:
    plain = StorageSettings(tables="s3://bucket/t")
    for name in ("AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_S3_LOCKING_PROVIDER"):
        with pytest.raises(UsageProblem, match=f"environment {name} is set"):
            s3_options(plain, {name: "true"})
    with pytest.raises(UsageProblem, match=r"use https, or set storage\.s3_allow_http"):
        s3_options(plain, {"AWS_ENDPOINT_URL": "http://store.example:9000"})
    with pytest.raises(UsageProblem, match="holds a login"):
        s3_options(StorageSettings(tables="s3://key:secret@bucket/t"), {})
    with pytest.raises(UsageProblem, match="holds a login"):
        s3_options(StorageSettings(s3_endpoint="https://key:secret@store.example"), {})
    told = StorageSettings(tables=plain.tables, s3_endpoint="http://store.example:9000", s3_allow_http=True)
    assert s3_options(told, {})["allow_http"] == "true"
    assert s3_options(plain, {})["allow_http"] == "false"
    assert storage_options("data/tables") is None


def test_a_store_that_is_refused_leaves_the_one_of_before() -> None:
    """As of settings that are read again: those that are refused change nothing for a role that runs."""
    own = StorageSettings(tables="s3://bucket/tables", s3_endpoint="https://store.example")
    try:
        use_object_store(own, environment={})
        before = storage_options(own.tables)
        assert before is not None
        assert before["aws_endpoint_url"] == "https://store.example"
        with pytest.raises(UsageProblem, match="s3_allow_http"):
            use_object_store(own.model_copy(update={"s3_endpoint": "http://store.example"}), environment={})
        assert storage_options(own.tables) == before
        use_object_store(own.model_copy(update={"s3_endpoint": None}), environment={})
        now = storage_options(own.tables)
        assert now is not None
        assert "aws_endpoint_url" not in now
    finally:
        use_object_store(StorageSettings())
    assert storage_options(own.tables) is None
