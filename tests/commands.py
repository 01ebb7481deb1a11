"""`rebalancer` as a process of its own, with the settings of a test."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming.settings import Settings
from tests.waiting import DEADLINE_S

Process = subprocess.Popen[str]


def command(settings: Settings | Mapping[str, Any], folder: Path, *arguments: str) -> list[str]:
    """The words of a command with these settings, which are written to a file in `folder`."""
    content = settings.model_dump(mode="json", exclude_defaults=True) if isinstance(settings, Settings) else settings
    file = folder / "settings.json"
    text = json.dumps(content)
    if not file.exists() or file.read_text() != text:  # a command that has just started may be reading it
        file.write_text(text)
    return [sys.executable, "-m", "streaming", *arguments, "--config", str(file)]


def start(settings: Settings, folder: Path, *arguments: str) -> Process:
    """A command that runs beside the test, which must see to its end."""
    words = command(settings, folder, *arguments)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: Process, deadline_s: float = DEADLINE_S) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, once the command has ended."""
    output, errors = process.communicate(timeout=deadline_s)
    return process.returncode, output, errors


def run(
    settings: Settings, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """A command that has ended; `environment` is added to that of the test."""
    words, variables = command(settings, folder, *arguments), {**os.environ, **(environment or {})}
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=variables)
