"""Each session's local files lie in one folder; what killed ones have left is removed by the next start."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from streaming.errors import SetUpIncomplete
from streaming.pipeline import session
from tests.waiting import DEADLINE_S

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


def test_a_process_that_ends_removes_its_folder(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, folder):
        assert folder.parent == tmp_path
        assert (folder / "state").exists()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_processes_go_and_those_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_ours = tmp_path / "not-ours"
    not_ours.mkdir()
    (tmp_path / f"{session.SCRATCH_PREFIX}link").symlink_to(not_ours)
    (tmp_path / f"{session.SCRATCH_PREFIX}file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with holder(tmp_path) as (_, living), holder(tmp_path) as (killed, abandoned):
        killed.kill()
        killed.wait(timeout=DEADLINE_S)
        assert (abandoned / "state").exists()
        own = session.scratch_folder.__wrapped__()
        assert not abandoned.exists()
        assert (living / "state").exists()
        assert own not in (living, abandoned)
    assert list(not_ours.iterdir()) == []
    assert (tmp_path / f"{session.SCRATCH_PREFIX}file").exists()


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
                lock = session._locked(Path(folder))
                assert lock is not None
                others.callback(os.close, lock)
            return folder

        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(tempfile, "mkdtemp", made_and_taken)
        own = session.scratch_folder.__wrapped__()
    assert own == made[-1]
    assert len(made) == 2


def test_a_temporary_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(SetUpIncomplete, match=r"local files below TMPDIR or /tmp: .*Not a directory"):
        session.scratch_folder.__wrapped__()
