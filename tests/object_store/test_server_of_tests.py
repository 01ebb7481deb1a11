"""The S3 server that tests start ends with them, however they end, and waits for no reader of its log."""

import subprocess
import sys
import urllib.request

import psutil
import pytest

from tests.s3 import STARTED
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("s3_url"), pytest.mark.long]

HOLD_A_SERVER = """
import threading
from tests.s3 import s3_server
with s3_server() as url:
    print(url, flush=True)
    threading.Event().wait()
"""


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_server_ends_with_tests_that_are_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD_A_SERVER], stdout=subprocess.PIPE, text=True) as tests:
        try:
            assert tests.stdout is not None
            assert tests.stdout.readline().startswith("http://")
            (server,) = psutil.Process(tests.pid).children()
        finally:
            tests.kill()
    try:
        until("the server has ended", lambda: has_ended(server), 10.0)
    finally:
        if not has_ended(server):
            server.kill()


def test_a_server_whose_log_nobody_reads_goes_on_answering() -> None:
    """As where a call of delta-rs keeps the threads of its process from running."""
    command = [sys.executable, "-m", "tests.s3_store", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            started = next(match for match in map(STARTED.search, server.stderr) if match)
            for _ in range(40):  # longer together than a pipe holds
                urllib.request.urlopen(f"{started[1]}/?prefix={'x' * 4_000}", timeout=20).close()  # noqa: S310 - our own
        finally:
            server.kill()
