"""What `make audit` makes of pip-audit's report."""

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.objects import ROOT, script_at

SOUND = {"name": "numpy", "version": "2.4.1", "vulns": []}
WEAK = {"name": "idna", "version": "3.1", "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"]}]}
SKIPPED = {"name": "six", "skip_reason": "Dependency not found on PyPI and could not be audited: six (1.17.0)"}


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "release" / "audit.py")


@pytest.mark.parametrize(
    ("dependencies", "code", "line"),
    [
        ([SOUND], 0, "1 of 1 packages audited, 0 known weaknesses"),
        ([SOUND, WEAK], 1, "idna 3.1: PYSEC-2024-60, fixed in 3.7"),
        ([SKIPPED, WEAK], 1, "1 of 2 packages audited, 1 known weaknesses"),
        ([SOUND, SKIPPED], 3, "1 of 2 packages audited, 0 known weaknesses"),
        ([SKIPPED] * 7, 3, "not audited: 2 more"),
        ([], 3, "0 of 0 packages audited, 0 known weaknesses"),
    ],
)
def test_packages_that_were_not_audited_do_not_pass_for_sound(
    audit: dict[str, Any], dependencies: list[dict[str, Any]], code: int, line: str
) -> None:
    seen, lines = audit["outcome"](dependencies)
    assert seen == code
    assert line in lines


@pytest.mark.parametrize(("prints", "code"), [('{"dependencies": []}', 3), ("", 3)])
def test_a_tool_that_reports_nothing_fails_the_audit(
    audit: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], prints: str, code: int
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\nprintf '%s' '{prints}'\n")
    tool.chmod(0o755)
    assert audit["main"]([str(tool)]) == code
    assert "requirements.lock: " in capsys.readouterr().out
