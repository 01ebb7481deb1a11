"""The S3 server that tests start ends with them, however they end."""

import subprocess
import sys

import psutil
import pytest

from tests.waiting import until

pytestmark = pytest.mark.usefixtures("s3_url")

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
