"""Python's side of `KafkaOracle.java`: JSON lines to a JVM and back."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from streaming.errors import SetUpIncomplete
from streaming.runtime.jars import jar_paths, java_command
from tests.java_programs import FOR_SHORT_LIVES, compiled
from tests.waiting import DEADLINE_S

SOURCE = Path(__file__).with_name("KafkaOracle.java")


class KafkaOracle:
    """Kafka's assignors and AdminUtils; raises SetUpIncomplete where jars or the Java compiler are missing.

    Who measures Kafka's time gives no `java_options`: the quick compiler's code is slower.
    """

    def __init__(self, *, heap: str = "1g", java_options: Sequence[str] = FOR_SHORT_LIVES) -> None:
        class_path = os.pathsep.join(str(path) for path in [*jar_paths("oracle"), *jar_paths("broker")])
        modules = subprocess.run([java_command(), "--list-modules"], capture_output=True, text=True, check=True).stdout
        if "jdk.compiler" not in modules:
            raise SetUpIncomplete("Java has no compiler (a JDK has): Kafka's classes can't be driven from source")
        quiet = [
            "-Dlog4j2.level=OFF",
            "-Dlog4j.configurationFile=none",
            "-Dorg.apache.logging.log4j.simplelog.level=OFF",
        ]
        classes = compiled(SOURCE, class_path)
        options = [f"-Xmx{heap}", *java_options, *quiet]
        command = [java_command(), *options, "-cp", f"{class_path}{os.pathsep}{classes}", SOURCE.stem]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=DEADLINE_S)
        self._process.stdout.close()

    def ask(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Kafka's answer to a line of `assign` or `place`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
