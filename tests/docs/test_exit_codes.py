"""docs/exit-codes.md has every command and every error with the code that it ends with."""

from typing import Any

import pytest

from assignor_core.errors import InputError, InvalidGroup, NothingToPlanOn
from streaming import cli
from streaming.cli import COMMANDS, exit_code_of, run
from streaming.commands.json_lines import InvalidJson
from streaming.errors import AnotherCluster, LeaseExpired, UsageProblem
from streaming.pipeline.run import EXIT_QUERY_FAILED
from tests.deploy.objects import ROOT, script_at

PAGE = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "site" / "exit_codes.py")


@pytest.mark.long
def test_the_page_is_the_generated_one(script: dict[str, Any]) -> None:
    assert script["render"]() == PAGE


def test_each_command_has_its_codes_and_no_other_stands_there(script: dict[str, Any]) -> None:
    assert script["OWN_CODES"].keys() == COMMANDS.keys()
    assert script["OWN_CODES"]["pipeline"][str(EXIT_QUERY_FAILED)] == "a query died"


def test_errors_that_programs_get_by_name_are_there() -> None:
    """Errors of an input, of any module; no other error is shown by its name."""
    rows = PAGE.partition("## Errors")[2]
    assert all(f"\n| `{error.__name__}` |" in rows for error in (InputError, InvalidGroup, InvalidJson))
    assert NothingToPlanOn.__name__ not in rows


@pytest.mark.parametrize(
    "error", [UsageProblem, AnotherCluster, LeaseExpired, InputError, NothingToPlanOn], ids=lambda error: error.__name__
)
def test_a_command_that_an_error_ends_has_its_code(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error("the reason")

    monkeypatch.setattr(cli.rebalancer, "main", fail)
    assert run(["status"]) == exit_code_of(error)
    assert capsys.readouterr().err == "error: the reason\n"
    assert f"| {exit_code_of(error)} |" in PAGE
