"""Tables on S3: written once, read, kept small; and what becomes of it when the store is slow, away or refuses."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streaming import tables
from streaming.cli import run
from streaming.errors import RefusedForSafety, TableUnavailable
from streaming.settings import StorageSettings
from streaming.tables.conditional_puts import PROBE
from streaming.tables.object_stores import use_object_store
from tests.on_s3.objects import count_objects
from tests.s3 import BUCKET, SOUND, Fault, Proxy
from tests.waiting import until

pytestmark = pytest.mark.long

START_MS = 1_795_000_000_000
TABLE = "broker_intent"
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
TRIES_MAX = 6


def add(root: str, number: int) -> bool:
    row: dict[str, Any] = {
        "kafka_cluster": "c", "broker": number, "event_time": tables.utc(START_MS + number),
        "intent": "drain", "by": "me",
    }  # fmt: skip
    return tables.append(root, TABLE, [row], transaction_id=f"t{number}", transaction_version=0)


def brokers(root: str) -> list[int]:
    return sorted(row["broker"] for row in tables.read(root, TABLE, columns=["broker"]))


def test_rows_are_written_once_read_and_deleted(root: str, s3_url: str) -> None:
    for number in range(12):
        assert add(root, number)
        assert not add(root, number)
    reader = tables.TableReader(root)
    assert brokers(root) == list(range(12))
    assert reader.newest(TABLE, "event_time") == tables.utc(START_MS + 11)
    assert reader.encoded(TABLE, columns=["broker"]).num_rows == 12
    before = reader.state(TABLE)
    assert before is not None
    assert before.files == 12
    assert tables.delete(root, TABLE, tables.equal("broker", 3)) == 1
    # Without the proxy: delta-rs keeps its threads from running while it writes a file.
    use_object_store(StorageSettings(tables=root, s3_endpoint=s3_url))
    tables.tidy(root, TABLE)
    reader.look_again()
    after = reader.state(TABLE)
    assert after is not None
    assert after.files == 1
    assert brokers(root) == [number for number in range(12) if number != 3]


def test_sql_reads_them(root: str, store: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    add(root, 7)
    asked = ["sql", "SELECT broker FROM broker_intent", "--tables-dir", root, "--format", "json"]
    assert run([*asked, "--set", f"storage.s3_endpoint={store.url}"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"broker": 7}]


def test_sql_reads_an_earlier_moment(root: str, store: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    add(root, 7)
    between = datetime.now(UTC)
    next_second = between.replace(microsecond=0) + timedelta(seconds=1)  # a store dates objects in whole seconds
    until("another second begins", lambda: datetime.now(UTC) >= next_second, pause_s=0.05)
    add(root, 8)
    asked = ["sql", "SELECT broker FROM broker_intent ORDER BY 1", "--tables-dir", root, "--format", "json"]
    asked += ["--set", f"storage.s3_endpoint={store.url}"]
    assert run(asked) == 0
    assert json.loads(capsys.readouterr().out) == [{"broker": 7}, {"broker": 8}]
    assert run([*asked, "--at", between.isoformat()]) == 0
    assert json.loads(capsys.readouterr().out) == [{"broker": 7}]


def test_upkeep_removes_objects_that_no_version_within_the_retention_needs(root: str, s3_url: str) -> None:
    # Without the proxy: delta-rs keeps its threads from running.
    use_object_store(StorageSettings(tables=root, s3_endpoint=s3_url))
    for number in range(12):
        add(root, number)
    table = tables.open_table(root, TABLE)
    assert table is not None
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    place = f"tables/{TABLE}"
    prefix = root.removeprefix(f"s3://{BUCKET}/").removesuffix("/tables")
    assert count_objects(s3_url, prefix)[place].data == 12
    tables.tidy(root, TABLE)
    assert count_objects(s3_url, prefix)[place].data == 1
    assert brokers(root) == list(range(12))


def test_a_store_that_is_busy_for_a_moment_is_asked_again(root: str, store: Proxy) -> None:
    assert add(root, 0)
    store.fault = lambda _: Fault(status=503) if store.faults < 2 else SOUND
    assert add(root, 1)
    assert store.faults == 2
    assert brokers(root) == [0, 1]


def test_a_store_that_stays_busy_is_given_up_in_one_line(root: str, store: Proxy) -> None:
    assert add(root, 0)
    store.fault = lambda _: Fault(status=503)
    with pytest.raises(TableUnavailable, match=rf"table {TABLE} at s3://\S+ can't be read: .*503") as refused:
        brokers(root)
    assert "\n" not in str(refused.value)
    assert 1 < store.faults <= TRIES_MAX
    store.fault = lambda _: SOUND
    assert brokers(root) == [0]


@pytest.mark.parametrize(("status", "answer"), [(403, b"<Error><Code>AccessDenied</Code></Error>"), (400, EXPIRED)])
def test_wrong_credentials_are_named_in_one_line_and_not_tried_again(
    root: str, store: Proxy, status: int, answer: bytes
) -> None:
    store.fault = lambda _: Fault(status=status, body=answer)
    with pytest.raises(
        TableUnavailable, match=rf"{status} .*(AccessDenied|ExpiredToken: The provided token)"
    ) as refused:
        brokers(root)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert store.faults == 1


TRY = """
import sys
from streaming.errors import RebalancerError
from streaming.settings import StorageSettings
from streaming.tables.conditional_puts import check_conditional_put, try_conditional_put
from streaming.tables.object_stores import use_object_store
use_object_store(StorageSettings(tables=sys.argv[1], s3_endpoint=sys.argv[2]))
print(*try_conditional_put(sys.argv[1]))
try:
    check_conditional_put(sys.argv[1])
except RebalancerError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def tried(root: str, store: Proxy) -> tuple[int, str]:
    """Exit code and output of a process that tries the store: delta-rs lists and deletes files while it keeps all
    threads of its process from running, those of our proxy too.
    """
    done = subprocess.run([sys.executable, "-c", TRY, root, store.url], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_store_that_refuses_the_second_put_is_taken(root: str, store: Proxy) -> None:
    assert tried(root, store) == (0, f"True {root}: of two puts of one object the second is refused\n")
    made = {asked.path for asked in store.asked if asked.method == "PUT"}
    assert made
    assert all(f"/{PROBE}" in path for path in made)
    assert any(asked.method in ("DELETE", "POST") for asked in store.asked)  # what was made is removed again


def test_a_store_that_ignores_the_condition_is_refused(root: str, store: Proxy) -> None:
    store.fault = lambda asked: Fault(without_condition=True, delay_s=0.3) if asked.method == "PUT" else SOUND
    code, output = tried(root, store)
    assert code == RefusedForSafety.exit_code
    assert output.startswith(f"False {root} ignores conditional puts")
    assert "two controls could hold one lease" in output
