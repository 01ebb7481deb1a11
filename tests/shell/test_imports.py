"""What a command loads: nothing that only Spark needs, and Arrow with the allocator that leaves no freed memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.cli import COMMANDS, WITHOUT_PANDAS
from streaming.runtime.own_process import ARROW_POOL

SHOWN = """
from streaming.cli import leave_out
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


@pytest.mark.long
def test_pyarrow_does_without_a_module_that_is_left_out() -> None:
    """In a process of its own: what a process has left out stays so."""
    answer = subprocess.run([sys.executable, "-c", SHOWN], check=True, capture_output=True, text=True)
    assert answer.stdout == "done\n"


@pytest.mark.parametrize("name", ["pipeline", "run", "demo", "check"])
def test_whatever_may_start_spark_keeps_it(name: str) -> None:
    assert name not in WITHOUT_PANDAS
    assert COMMANDS.keys() >= {name, *WITHOUT_PANDAS}


LAGS = """
import re, sys
from streaming.commands.lag import read_lag
from streaming.settings import Settings
report = read_lag(Settings.model_validate({"storage": {"tables": sys.argv[1]}}), group_id=None, matches=re.compile(""))
assert report["groups_seen"] == 0
print([name for name in sys.modules if name.startswith("assignor_core.assignors")])
"""


@pytest.mark.long
def test_lag_of_all_groups_loads_no_assignors(tmp_path: Path) -> None:
    """They come with the causes of one group's lag."""
    command = [sys.executable, "-c", LAGS, str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


ROLE = """
import sys, types
from streaming.commands.roles import control

def shown(*_arguments):
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
    return 0

assert "pyarrow" not in sys.modules
sys.modules["streaming.control.run"] = types.SimpleNamespace(run_control=shown, run_controls=shown)
control.main([], standalone_mode=False)
"""


@pytest.mark.long
@pytest.mark.parametrize(("chosen", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_uses_the_allocator_of_the_c_library_unless_another_is_chosen(chosen: str | None, used: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != ARROW_POOL}
    if chosen:
        environment[ARROW_POOL] = chosen
    command = [sys.executable, "-c", ROLE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [used], done.stderr
