"""Names that a terminal would act on, in everything that prints: shown as they are written, never acted on."""

import json
import unicodedata
from pathlib import Path

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.cli import run
from streaming.commands import check
from streaming.commands.plan import show
from streaming.runtime.logs import configure_logging
from streaming.runtime.printable import printable, printable_lines
from streaming.serve.metrics import Exposition, Form
from streaming.serve.snapshot import read_snapshot
from streaming.settings import LogSettings, Settings
from streaming.views.json_values import to_json
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for
from tests.simulate.group_windows import member, window

EVIL = "\x1b[2J\x1b]0;own\x07[red]x[/]:key:\r\x9b31m\u202efake\u2028<b>&\x7f"
"""Clears the screen, sets the title, is rich's markup and emoji, turns the direction of text, is HTML."""
TWO_LINES = "billing\nerror: all is lost"
SHOWN = "\\x1b[2J\\x1b]0;own\\x07[red]x[/]:key:\\r\\x9b31m\\u202efake\\u2028<b>&\\x7f"


def check_harmless(text: str) -> None:
    acted_on = {char for char in text if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") or char == "\u202e"}
    assert acted_on <= {"\n"}
    assert SHOWN in text


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Groups, a topic and a decision with such names."""
    made = settings_for(tmp_path_factory.mktemp("evil"))
    synthetic = Synthetic(made.storage.tables)
    for index in range(3):
        at_ms = NOW_MS - (3 - index) * WINDOW_MS
        synthetic.group_lag(at_ms, [(EVIL, EVIL, 0, 10, 10 + index), (TWO_LINES, "t", 0, 10, 10 + index)])
    synthetic.decision(NOW_MS, detail=f"group {EVIL} falls behind")
    return made


def test_what_is_no_control_character_stays() -> None:
    text = "größer 配置 🙂 [dev]billing a b"
    assert printable(text) == printable_lines(text) == text
    assert printable(EVIL) == SHOWN
    assert printable("half a pair \ud83d") == "half a pair \\ud83d"


@pytest.mark.parametrize(
    "command",
    [["lag"], ["lag", "--group", EVIL], ["status"], ["status", "--groups"], ["sql", "SELECT group_id FROM group_lag"]],
    ids=lambda command: " ".join(command[:2])[:14].encode("unicode_escape").decode(),
)
def test_no_command_lets_a_name_act_on_the_terminal(
    command: list[str], settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", f"storage.tables={settings.storage.tables}"]
    assert run([*command, *options, *([] if command[0] == "sql" else ["--set", "kafka.cluster_name=test"])]) == 0
    out = capsys.readouterr().out
    check_harmless(out)
    assert not [line for line in out.splitlines() if line.startswith("error: all is lost")]
    assert not [line for line in out.splitlines() if "error: all is lost" in line and "billing\\n" not in line]


def test_an_error_is_one_harmless_line(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", f"storage.tables={settings.storage.tables}", "--set", "kafka.cluster_name=test"]
    assert run(["lag", "--match", f"{EVIL}(", *options]) == 2
    assert run(["simulate", "--group", f"no such {EVIL}", *options]) == 2
    error = capsys.readouterr().err
    check_harmless(error)
    assert error.count("\n") == 2


@pytest.mark.parametrize("form", [[], ["--trace"]], ids=["figures", "trace"])
def test_a_simulation_of_such_a_group(form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window(tmp_path, 0, EVIL, {0: member(EVIL, 0)})
    window(tmp_path, 1, EVIL, {number: member(EVIL, 0) for number in range(2)})
    assert run(["simulate", "--group", EVIL, *form, "--set", f"storage.tables={tmp_path}"]) == 0
    check_harmless(capsys.readouterr().out)


@pytest.mark.long
def test_a_picture_of_such_a_group(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """The font has no such glyphs, and the library warns with the character itself."""
    window(tmp_path, 0, EVIL, {0: member(EVIL, 0)})
    window(tmp_path, 1, EVIL, {number: member(EVIL, 0) for number in range(2)})
    picture = tmp_path / "picture.png"
    assert run(["simulate", "--group", EVIL, "--png", str(picture), "--set", f"storage.tables={tmp_path}"]) == 0
    assert picture.stat().st_size > 1_000
    assert [str(warning.message) for warning in recwarn if not str(warning.message).isprintable()] == []


def test_a_plan_and_a_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = {"bytes_in": {"max_over_mean": 1.5}}
    plan = Plan("c", (Movement(EVIL, 0, (1,), (2,), 1.0, EVIL),), ratio, ratio, problems=(EVIL,))
    show(ProposedPlan(plan), out_file=None, as_json=False)
    check_harmless(capsys.readouterr().out)
    monkeypatch.setattr(check, "_findings", lambda *_: [check.Finding("partitions healthy", False, f"{EVIL}\nok  all")])
    assert run(["check"]) == 1
    out = capsys.readouterr().out
    check_harmless(out)
    assert out.count("\n") == 1


def test_logs_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(format="console", level="info"))
    try:
        structlog.get_logger().warning(TWO_LINES, group=EVIL, groups=[EVIL], text=f"two words {EVIL}")
    finally:
        structlog.reset_defaults()
    error = capsys.readouterr().err
    check_harmless(error)
    assert error.count("\n") == 1


def test_metrics_and_the_api_keep_such_names_as_data(settings: Settings) -> None:
    snapshot = read_snapshot(settings, NOW_MS)
    body = Exposition(snapshot, settings).answer(Form.of("text/plain"))
    families = text_string_to_metric_families(body.decode())
    groups = {sample.labels.get("consumergroup") for family in families for sample in family.samples}
    assert {EVIL, TWO_LINES} <= groups
    answered = bytes(JSONResponse(to_json(snapshot)).body)
    assert b"\x1b" not in answered
    assert json.loads(answered)["groups"]
