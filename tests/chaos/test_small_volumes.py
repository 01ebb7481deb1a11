"""The fault that needs volumes of its own is left out, by name, where none can be mounted."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.harness import NEEDS_VOLUMES, small_log_dirs


def test_without_the_right_to_mount_one_line_names_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no command `mount`
    with ExitStack() as stack:
        assert small_log_dirs(tmp_path, stack) == {}
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{NEEDS_VOLUMES} is left out, as it needs the right to mount a small volume: ")
