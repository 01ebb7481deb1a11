"""Lines of logs: each takes their form, whoever writes it, and names its cluster where several share a process."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from streaming.cluster.tokens import FileTokens, KeptTokens, Token
from streaming.collect.sample import BROKERS_AT_A_TIME, SampleState
from streaming.errors import ClusterUnreachable, UsageProblem
from streaming.settings import KafkaSettings
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


@pytest.mark.long
def test_with_json_each_line_is_an_object_also_of_child_processes_and_tracebacks() -> None:
    child, ours, *traceback = [json.loads(line) for line in written("json")]
    assert (child["line"], child["event"], child["level"]) == ("a child knows **********", "output", "warning")
    assert ours == {"event": "started"}
    assert traceback[0]["line"] == "Traceback (most recent call last):"
    assert traceback[-1]["line"] == "ValueError: at the end"


@pytest.mark.long
def test_for_people_lines_stay_as_they_are_without_what_a_jvm_says_of_itself() -> None:
    child, ours, *traceback = written("console")
    assert (child, ours) == ("a child knows **********", '{"event": "started"}')
    assert traceback[-1] == "ValueError: at the end"


HOUR_MS = 3_600_000


def samples_two_brokers(_folder: Path) -> None:
    look = SampleState({1: None, 2: None}, 0, 0.0, lambda: 0.0, BROKERS_AT_A_TIME)
    look.of_each([1, 2], lambda broker: structlog.get_logger().warning("unread", broker=broker))


def renews_a_token(_folder: Path) -> None:
    now_ms, tokens = [0], [Token("first", 0, HOUR_MS)]

    def fetch() -> Token:
        if not tokens:
            raise ClusterUnreachable("away")
        return tokens.pop()

    in_a_thread(KeptTokens(fetch, lambda: now_ms[0]), lambda: now_ms.__setitem__(0, HOUR_MS - 1))


def reads_a_token_file(folder: Path) -> None:
    file = folder / "token"
    file.write_text("token")
    settings = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_file=file
    )
    in_a_thread(FileTokens(settings), file.unlink)


def in_a_thread(source: KeptTokens | FileTokens, then: Callable[[], object]) -> None:
    """A client asks in a thread of its own: it gets a token, and after `then` finds that it can't be renewed."""

    def ask() -> None:
        source.token()
        then()
        with suppress(ClusterUnreachable, UsageProblem):
            source.token()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()


@pytest.mark.parametrize("work", [samples_two_brokers, renews_a_token, reads_a_token_file])
def test_lines_of_a_cluster_name_it(work: Callable[[Path], None], tmp_path: Path) -> None:
    with (
        structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as logged,
        structlog.contextvars.bound_contextvars(kafka_cluster="east"),
    ):
        work(tmp_path)
    assert logged
    assert {row.get("kafka_cluster") for row in logged} == {"east"}
