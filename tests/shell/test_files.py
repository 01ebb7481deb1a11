"""Who may read what the product writes: tables, locks, logs and lists of processes are not for everyone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WRITE = """
import os, subprocess, sys
from pathlib import Path
umask, root = int(sys.argv[1], 8), Path(sys.argv[2])
os.umask(umask)
from streaming.commands.options import settings_from
from streaming import tables
from streaming.runtime import processes
from streaming.runtime.locks import exclusive
settings = settings_from(None, (f"storage.tables={root}/data/tables", *sys.argv[3:]))
for name in ("decision", "plan", "movement", "execution"):
    tables.ensure_table(settings.storage.tables, name)
with exclusive(f"{root}/data/checkpoints", "pipeline"):
    child = processes.start([sys.executable, "-c", "open('by-a-child', 'w')"], log=root / "logs" / "child.log")
    processes.note({"child": child.pid}, root / "processes.json")
    child.wait()
"""


def modes(folder: Path) -> set[tuple[bool, int]]:
    """(Whether it is a folder, mode) of all that lies below."""
    return {(path.is_dir(), path.stat().st_mode & 0o777) for path in folder.rglob("*")}


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
    command = [sys.executable, "-c", WRITE, f"{umask:o}", str(tmp_path), *options]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert len(list((tmp_path / "data").rglob("*.json"))) >= 4
    assert (tmp_path / "by-a-child").exists()
    assert modes(tmp_path) == {(True, folders), (False, files)}
