"""Commands that need no Spark start without what only Spark needs."""

import subprocess
import sys

import pytest

from streaming.cli import COMMANDS, WITHOUT_PANDAS

SHOWN = """
from streaming.commands.imports import leave_out
leave_out("pandas")
import sys
import pyarrow
assert pyarrow.array(["a"]).to_pylist() == ["a"]
assert "pandas" not in sys.modules
try:
    import pandas
except ModuleNotFoundError as error:
    assert error.name == "pandas"
import json.tool  # every other module is found as before
print("done")
"""


def test_pyarrow_does_without_a_module_that_is_left_out() -> None:
    """In a process of its own: what a process has left out stays so."""
    answer = subprocess.run([sys.executable, "-c", SHOWN], check=True, capture_output=True, text=True)
    assert answer.stdout == "done\n"


@pytest.mark.parametrize("name", ["pipeline", "run", "demo", "check"])
def test_whatever_may_start_spark_keeps_it(name: str) -> None:
    assert name not in WITHOUT_PANDAS
    assert COMMANDS.keys() >= {name, *WITHOUT_PANDAS}
