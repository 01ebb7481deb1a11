"""Log lines name their cluster where several share a process, also lines of threads that a cluster's thread starts."""

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
