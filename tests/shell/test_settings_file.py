"""Whether the settings file has changed, as `rebalancer run` looks at it again and again."""

import os
from pathlib import Path

import pytest

from streaming.commands.reloading import SettingsFile


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
