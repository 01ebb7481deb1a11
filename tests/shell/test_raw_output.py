"""Standard error of a role: each line takes the form of the logs, whoever writes it."""

import json
import subprocess
import sys

from tests.waiting import DEADLINE_S

WRITES = """
import os, sys
from streaming.runtime.logs import pass_standard_error_through
from streaming.settings import LogSettings
pass_standard_error_through(LogSettings(format={log_format!r}), frozenset({{"hunter2"}}), now_ms=lambda: 0)
os.system("echo WARNING: Using incubator modules: jdk.incubator.vector >&2; echo a child knows hunter2 >&2")
print('{{"event": "started"}}', file=sys.stderr)
raise ValueError("at the end")
"""


def written(log_format: str) -> list[str]:
    command = [sys.executable, "-c", WRITES.format(log_format=log_format)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    return ended.stderr.splitlines()


def test_with_json_each_line_is_an_object_also_of_child_processes_and_tracebacks() -> None:
    child, ours, *traceback = [json.loads(line) for line in written("json")]
    assert (child["line"], child["event"], child["level"]) == ("a child knows **********", "output", "warning")
    assert ours == {"event": "started"}
    assert traceback[0]["line"] == "Traceback (most recent call last):"
    assert traceback[-1]["line"] == "ValueError: at the end"


def test_for_people_lines_stay_as_they_are_without_what_a_jvm_says_of_itself() -> None:
    child, ours, *traceback = written("console")
    assert (child, ours) == ("a child knows **********", '{"event": "started"}')
    assert traceback[-1] == "ValueError: at the end"
