"""Who may read what the product writes: tables, locks, logs and lists of processes are not for everyone."""

import os
import sys
from pathlib import Path

import pytest

from streaming import tables
from streaming.commands.options import settings_from
from streaming.runtime import processes
from streaming.runtime.locks import exclusive
from streaming.runtime.own_process import current_umask


def write_everything(root: Path, options: list[str]) -> None:
    """Tables, a lock, a child's file and log, and the list of processes."""
    settings = settings_from(None, (f"storage.tables={root}/data/tables", *options))
    for name in ("decision", "plan", "movement", "execution"):
        tables.ensure_table(settings.storage.tables, name)
    with exclusive(f"{root}/data/checkpoints", "pipeline"):
        command = [sys.executable, "-c", f"open({str(root / 'by-a-child')!r}, 'w')"]
        child = processes.start(command, log=root / "logs" / "child.log")
        processes.note({"child": child.pid}, root / "processes.json")
        child.wait()


def modes(folder: Path) -> set[tuple[bool, int]]:
    """(Whether it is a folder, mode) of all that lies below."""
    return {(path.is_dir(), path.stat().st_mode & 0o777) for path in folder.rglob("*")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("umask", "options", "folders", "files"),
    [
        (0o022, [], 0o750, 0o640),
        (0o000, [], 0o750, 0o640),
        (0o077, [], 0o700, 0o600),
        (0o022, ["storage.readable_by=owner"], 0o700, 0o600),
        (0o022, ["storage.readable_by=everyone"], 0o755, 0o644),
        (0o077, ["storage.readable_by=everyone"], 0o700, 0o600),
    ],
)
def test_what_is_written_is_readable_by_those_that_the_settings_name(
    umask: int, options: list[str], folders: int, files: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write_everything(tmp_path, options)
    finally:
        os.umask(before)
    assert len(list((tmp_path / "data").rglob("*.json"))) >= 4
    assert (tmp_path / "by-a-child").exists()
    assert modes(tmp_path) == {(True, folders), (False, files)}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux shows the umask without setting it")
def test_the_umask_is_read_without_being_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large batches read it while other threads make files: two that set it could leave the strictest one for good."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as unset:
            unset.delattr(os, "umask")
            assert current_umask() == 0o027
    finally:
        os.umask(before)
