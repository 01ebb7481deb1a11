"""Checks and quick tests run where the packages of `deploy/extras` are not installed: after `make setup` alone."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from streaming.runtime.jars import PROJECT_ROOT

IMPORT = re.compile(r"^ *(?:from ([a-z_]\w*)[\w.]* import |import ([a-z_]\w*)[\w.]*(?: as \w+)?$)", re.MULTILINE)
CHECKED = ("streaming", "tests", "deploy")


@pytest.mark.long
def test_mypy_passes_over_what_the_lock_does_not_install() -> None:
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    passed_over = {
        pattern.removesuffix(".*")
        for override in project["tool"]["mypy"]["overrides"]
        if override.get("ignore_missing_imports")
        for pattern in override["module"]
    }
    locked = set(re.findall(r"^([\w.-]+)==", (PROJECT_ROOT / "requirements.lock").read_text(), re.MULTILINE))
    installed = {
        module
        for module, distributions in packages_distributions().items()
        if any(re.sub(r"[-_.]+", "-", name).lower() in locked for name in distributions)
    }
    files = [file for folder in CHECKED for file in (PROJECT_ROOT / folder).rglob("*.py")]
    ours = {"assignor_core", *CHECKED, *(file.stem for file in files)}
    imported = {name for file in files for found in IMPORT.findall(file.read_text()) for name in found if name}
    assert "playwright" in imported
    assert imported - set(sys.stdlib_module_names) - installed - ours <= passed_over
