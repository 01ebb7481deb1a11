"""A folder is one place for tables, locks, checkpoints and Spark, however a setting spells it."""

from pathlib import Path

import pytest

from streaming import tables
from streaming.errors import UsageProblem
from streaming.pipeline.checkpoints import CheckpointFiles
from streaming.runtime.locks import exclusive
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
