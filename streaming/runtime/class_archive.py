"""Classes of a Java program, loaded and checked beforehand (Java's application class-data sharing, JEP 350).

With such a file the program starts with about half of the CPU time. Java itself checks that the file fits to it and to
the class path, and starts without it otherwise. The set-up makes the files once for each virtual environment and Java.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from streaming.errors import RebalancerError
from streaming.runtime.jars import CHECKSUMS, java_command

FOLDER = Path(sys.prefix) / "share" / "kafka-load-rebalancer"
QUIETLY = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Without the warnings: a file that doesn't fit any more costs time, nothing else."""

MADE_BY = "the pipeline at work on a broker"
"""What loads the classes of Spark's archive; by another text here, archives that exist are made again."""

Program = Callable[[tuple[str, ...], Path], None]
"""Starts the program with these options of Java and ends it in order; the folder is there for what it writes."""


def archive_path(program: str, *depends_on: object) -> Path:
    """Path of the archive for this Java, our jars and `depends_on`, there or not. Raises SetUpIncomplete."""
    java = Path(java_command()).resolve()
    parts = (java, java.stat().st_mtime_ns, CHECKSUMS.read_text(), *depends_on)
    return FOLDER / f"{program}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"


def spark_archive_path() -> Path:
    """Returns the path of the archive of Spark's classes, whether the archive exists or not. Raises SetUpIncomplete."""
    pyspark = importlib.util.find_spec("pyspark")  # located, not imported: an import takes seconds
    return archive_path("spark", pyspark and pyspark.origin, MADE_BY)


def options(archive: Path) -> tuple[str, ...]:
    """Java's options that use the archive; none where it has not been made."""
    return (f"-XX:SharedArchiveFile={archive}", *QUIETLY) if archive.is_file() else ()


def make(archive: Path, program: Program) -> bool:
    """Make the archive; False where it is there already. Raises OSError where the folder can't be written."""
    if archive.is_file():
        return False
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=FOLDER) as scratch:
        made = Path(scratch) / archive.name
        program((f"-XX:ArchiveClassesAtExit={made}", "-XX:TieredStopAtLevel=1", *QUIETLY), Path(scratch))
        made.chmod(0o644)  # whoever made it: in an image another user starts the program
        for old in FOLDER.glob(f"{archive.name.split('-')[0]}-*.jsa"):
            old.unlink()
        os.replace(made, archive)
    return True


def make_if_possible(what: str, archive: Callable[[], Path], program: Program) -> int:
    """A set-up step. Without an archive all works, only slower: a failure is a line, and no error."""
    try:
        if make(archive(), program):
            print(f"classes of {what}: archived, so that they load sooner", flush=True)
    except (RebalancerError, OSError, subprocess.SubprocessError) as error:
        print(f"classes of {what}: not archived, so they load slower ({error})", flush=True)
    return 0
