"""Two processes of serve on the same tables: one is killed, and whoever asks the other misses nothing."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from streaming import tables
from streaming.runtime import processes
from streaming.runtime.accounts import Role, new_token, write_tokens
from streaming.runtime.processes import free_port
from tests.serve.synthetic import Synthetic, skewed_cluster
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.long

TOKEN_LASTS_MS = 3_600_000
UNDRAIN = "/api/v1/brokers/3/undrain"


@dataclass(frozen=True, slots=True)
class Serve:
    """One process, and who asks it as an operator."""

    process: subprocess.Popen[bytes]
    client: httpx.Client

    def act(self, key: str) -> httpx.Response:
        return self.client.post(UNDRAIN, headers={"Idempotency-Key": key})

    def answers(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def serving(folder: Path, number: int, token: str) -> Iterator[Serve]:
    """Ready; killed at the end, if it still runs."""
    port, config = free_port(), folder / f"serve-{number}.yaml"
    settings = {
        "kafka": {"cluster_name": "test"},
        "storage": {"tables": str(folder / "tables")},
        "serve": {"port": port, "refresh_interval_ms": 200, "tokens_file": str(folder / "tokens.json")},
    }
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "streaming", "serve", "--config", str(config)]
    process = processes.start(command, log=folder / f"serve-{number}.log")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=DEADLINE_S) as client:
        serve = Serve(process, client)
        try:
            until(f"serve {number} is ready", serve.answers)
            yield serve
        finally:
            process.kill()
            process.wait()


def test_one_is_killed_and_the_other_shows_the_same_and_knows_what_was_done(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    root = str(tmp_path / "tables")
    skewed_cluster(Synthetic(root), now_ms)
    token, kept = new_token("ops-1", Role.OPERATOR, now_ms=now_ms, expires_ms=now_ms + TOKEN_LASTS_MS)
    write_tokens(tmp_path / "tokens.json", [kept])
    with serving(tmp_path, 1, token) as first, serving(tmp_path, 2, token) as second:
        shown = [serve.client.get("/api/v1/brokers").json()["items"] for serve in (first, second)]
        assert len(shown[0]) == 3
        assert shown[0] == shown[1]
        acted = first.act("undrain-3")
        assert acted.status_code == 200, acted.text
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert second.answers()
        again = second.act("undrain-3")
        assert (again.status_code, again.json()) == (200, acted.json())
        assert again.headers["Idempotency-Replayed"] == "true"
        assert len({row["act_id"] for row in tables.read(root, "audit")}) == 1, "it was done once"
        assert second.act("undrain-3-again").status_code == 200
        assert second.client.get("/api/v1/brokers").json()["items"] == shown[0]
