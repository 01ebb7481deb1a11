"""How tests start Kafka's tools and Java programs of one file: with little CPU time.

Java would compile a file anew at each start, which takes as long as what most of these programs do.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from streaming.demo.class_archive import archive_path
from streaming.runtime import class_archive
from streaming.runtime.jars import class_path, java_command
from tests.waiting import DEADLINE_S

FOR_SHORT_LIVES = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""The quick compiler alone, and a collector without threads of its own."""


def tool(main_class: str, *arguments: str, heap: str = "128m") -> list[str]:
    """Command of one of Kafka's tools."""
    return [*_java(heap), "-cp", os.pathsep.join((class_path("broker"), class_path("tools"))), main_class, *arguments]


def program(source: Path, *arguments: str, heap: str = "300m", jars_of: Sequence[str] = ("broker",)) -> list[str]:
    """Command of a program of one file with these configurations of `conf/ivy.xml`; `broker` comes first."""
    jars = os.pathsep.join(map(class_path, jars_of))
    return [*_java(heap), "-cp", os.pathsep.join((jars, str(compiled(source, jars)))), source.stem, *arguments]


def compiled(source: Path, jars: str) -> Path:
    """The folder with the file's classes, which are made once; raises CalledProcessError where it has a mistake."""
    java = Path(java_command()).resolve()
    parts = (source.read_text(encoding="utf-8"), jars, java, java.stat().st_mtime_ns)
    folder = class_archive.FOLDER / f"tests-{source.stem}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    class_archive.FOLDER.mkdir(parents=True, exist_ok=True)
    compiler = [java_command(), *FOR_SHORT_LIVES, "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    with tempfile.TemporaryDirectory(prefix="making-", dir=class_archive.FOLDER) as scratch:
        made = Path(scratch) / "classes"
        command = [*compiler, "-nowarn", "-d", str(made), "-cp", jars, str(source)]
        subprocess.run(command, check=True, timeout=DEADLINE_S)
        with suppress(OSError):  # another process has made them meanwhile
            made.rename(folder)
    return folder


def _java(heap: str) -> list[str]:
    """The archive of brokers has many classes of clients and tools, too: its class path begins theirs."""
    return [java_command(), f"-Xmx{heap}", *FOR_SHORT_LIVES, *class_archive.options(archive_path())]
