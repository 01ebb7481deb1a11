"""Files that commands write: replaced as a whole where they are files, written to where they are something else."""

import os
import stat
import threading
from pathlib import Path

import pytest

from streaming.commands.console import write_whole
from streaming.errors import UsageProblem


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    for content in (b"old", b"new"):
        write_whole("--png", file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "a.png", tmp_path / "link"
    link.symlink_to(file)
    for content in (b"old", b"new"):
        write_whole("--png", link, content)
        assert file.read_bytes() == content
    assert link.is_symlink()
    assert list((tmp_path / "there").iterdir()) == [file]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole("--out", pipe, b"content")
    assert stat.S_ISFIFO(pipe.lstat().st_mode), "nobody would end the reader"
    reader.join(60)
    assert read == [b"content"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("this system lets nobody make a device")
    write_whole("--png", device, b"content")
    assert stat.S_ISCHR(device.lstat().st_mode)


def test_what_can_t_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (("file/a.png", "Not a directory"), ("no/a.png", "No such file"), ("", "Is a directory"),
                         ("loop/a.png", "Too many levels")):  # fmt: skip
        with pytest.raises(UsageProblem, match=rf"^--png {tmp_path / name}: {reason}"):
            write_whole("--png", tmp_path / name, b"content")
