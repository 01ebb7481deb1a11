"""One idempotency key that reaches two serves on the same tables, or the serve after one that was killed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from streaming.runtime.accounts import Role
from streaming.serve.api import audit
from streaming.serve.api.audit import ActOutcome
from streaming.tables import delete, ensure_table, of_cluster
from tests.racing import at_once
from tests.serve.asking import Acted, ask
from tests.serve.served import Served, refusal, state

WAIT_S = 120
PATH = "/api/v1/brokers/3/undrain"
IN_PROGRESS = (409, "in_progress")


class Counted(Acted):
    """Counts what it was asked for; each waits until it is let go on."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.acts = threading.Semaphore(0), threading.Event(), 0

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:
        self.acts += 1
        self.begun.release()
        assert self.go_on.wait(WAIT_S)
        return super().undrain(broker, by, now_ms=now_ms)


def undrain(served: Served, app: Starlette, path: str = PATH) -> httpx.Response:
    headers = {"Authorization": f"Bearer {served.tokens[Role.OPERATOR]}", "Idempotency-Key": "undrain-3"}
    return ask(app, "POST", path, headers=headers)


@pytest.mark.long
def test_of_two_serves_that_get_a_key_at_the_same_moment_one_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, counted = Served(tmp_path, str(tmp_path / "tables")), Counted()
    ensure_table(served.settings.storage.tables, "audit")
    counted.go_on.set()
    apps = [served.application(counted) for _ in range(2)]
    answers = at_once(monkeypatch, *(lambda app=app: undrain(served, app) for app in apps))
    assert counted.acts == 1
    first = next(
        answer for answer in answers if answer.status_code == 200 and "idempotency-replayed" not in answer.headers
    )
    other = next(answer for answer in answers if answer is not first)
    assert state(other) == IN_PROGRESS or other.json() == first.json()
    assert len(served.acts()) == 2


def test_while_an_act_is_done_the_other_serve_refuses_and_has_its_answer_afterwards(served: Served) -> None:
    counted = Counted()
    one, other = (served.application(counted) for _ in range(2))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(undrain, served, one)
        try:
            assert counted.begun.acquire(timeout=WAIT_S)
            refused = undrain(served, other)
            assert state(refused) == IN_PROGRESS
            assert refused.headers["retry-after"] == "5"
            assert refusal(undrain(served, other, "/api/v1/brokers/4/undrain"))[0] == 422
        finally:
            counted.go_on.set()
        first = asked.result(WAIT_S)
    again = undrain(served, other)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert counted.acts == 1


class Killed(Acted):
    """Is killed while it acts."""

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:  # noqa: ARG002
        raise KeyboardInterrupt


def test_the_key_of_a_serve_that_was_killed_acts_again_once_that_is_sure(served: Served) -> None:
    with pytest.raises(KeyboardInterrupt):
        undrain(served, served.application(Killed()))
    assert state(undrain(served, served.application(Acted()))) == IN_PROGRESS
    served.clock_ms += audit.BEGUN_LIVES_MS
    assert state(undrain(served, served.application(Acted()))) == (200, "undrained")
    served.clock_ms += 1
    assert state(undrain(served, served.application(Killed()))) == (200, "undrained")


def test_a_key_acts_again_after_a_day(served: Served) -> None:
    counted = Counted()
    counted.go_on.set()
    for _ in range(3):
        assert state(undrain(served, served.application(counted))) == (200, "undrained")
        served.clock_ms += audit.KEY_LIVES_MS + 1
    assert counted.acts == 3


def test_a_key_acts_again_after_its_rows_have_expired(served: Served) -> None:
    """The table knows the transactions of a key for ever, and its rows for a time."""
    counted = Counted()
    counted.go_on.set()
    root, cluster = served.settings.storage.tables, served.settings.kafka.cluster_name
    for _ in range(3):
        assert state(undrain(served, served.application(counted))) == (200, "undrained")
        served.clock_ms += audit.KEY_LIVES_MS + 1
        delete(root, "audit", of_cluster(cluster))
    assert counted.acts == 3
