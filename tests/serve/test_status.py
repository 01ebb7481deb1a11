"""`rebalancer status` over tables that the test writes: the plan and the execution that matter now are shown."""

import json
import time
from pathlib import Path

import pytest

from streaming import tables
from streaming.cli import run
from streaming.commands.status import read_status
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for


def test_a_plan_that_waits_for_its_turn_does_not_hide_the_one_that_is_carried_out(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)

    def shown() -> str:
        found: str = read_status(settings, now_ms=NOW_MS + 60_000)["execution"]["execution_id"]
        return found

    synthetic.event(NOW_MS, 0, "approved")
    assert shown() == "e-1", "nothing else is there"
    synthetic.event(NOW_MS + 1_000, 1, "started")
    synthetic.event(NOW_MS + 2_000, 0, "approved", execution_id="e-2")
    assert shown() == "e-1"
    synthetic.event(NOW_MS + 3_000, 2, "done")
    assert shown() == "e-2"
    synthetic.event(NOW_MS + 4_000, 1, "refused", execution_id="e-2")
    assert shown() == "e-2"


PLAN = "5ec398fbaf13" + "0" * 52
TOLD = "plan 5ec398fbaf13: 6 movements, 0.12 GB, bytes in max/mean 1.45 -> 1.02, expires in 41 min: rebalancer apply "


def test_the_plan_that_waits_is_shown_with_the_command_that_carries_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(tmp_path)
    now_ms = time.time_ns() // 1_000_000
    synthetic = Synthetic(settings.storage.tables)
    synthetic.plan(now_ms - 300_000, "b" * 64)
    synthetic.plan(now_ms - 200_000, PLAN, expires_at=tables.utc(now_ms + 41 * 60_000 + 20_000))
    synthetic.decision(now_ms - 200_000, "plan", "skewed", plan_id=PLAN)
    synthetic.decision(now_ms - 100_000, "hold", "cooldown")
    options = ["--set", "kafka.cluster_name=test", "--set", f"storage.tables={settings.storage.tables}"]
    assert run(["status", *options]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("plan "))
    assert line.startswith(f"{TOLD}5ec398fbaf13 --set kafka.cluster_name=test --set storage.tables=")
    assert run(["status", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"]["plan_id"], found["plan"]["movements"]) == (PLAN, 6)
    assert found["plan"]["max_over_mean"]["bytes_in"] == {"before": 1.45, "after": 1.02}
    assert found["decision"]["plan_id"] is None, "what the newest evaluation has made"


def test_a_plan_waits_until_it_expires_or_an_execution_takes_it(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)

    def waiting(after_ms: int) -> str | None:
        plan = read_status(settings, now_ms=NOW_MS + after_ms)["plan"]
        return None if plan is None else plan["plan_id"][:1]

    synthetic.plan(NOW_MS, "a" * 64)
    assert (waiting(1_000), waiting(3_600_001)) == ("a", None)
    synthetic.event(NOW_MS + 1_000, 0, "approved", execution_id="e-1", plan_id="a" * 64)
    assert waiting(2_000) is None, "taken"
    synthetic.plan(NOW_MS + 2_000, "b" * 64)
    assert waiting(3_000) == "b", "e-1 has moved nothing yet"
    synthetic.event(NOW_MS + 4_000, 1, "started", execution_id="e-1", plan_id="a" * 64)
    synthetic.event(NOW_MS + 5_000, 2, "done", execution_id="e-1", plan_id="a" * 64)
    assert waiting(6_000) is None, "made of what e-1 has changed"
    synthetic.plan(NOW_MS + 7_000, "c" * 64)
    synthetic.event(NOW_MS + 8_000, 3, "measured", execution_id="e-1", plan_id="a" * 64)
    assert waiting(9_000) == "c"
    synthetic.event(NOW_MS + 10_000, 0, "refused", execution_id="e-2", plan_id="c" * 64)
    assert waiting(11_000) is None
