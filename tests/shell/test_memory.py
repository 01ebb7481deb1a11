"""Control leaves no freed memory with Arrow's own allocator."""

import os
import subprocess
import sys

import pytest

from streaming.runtime.own_process import ARROW_POOL

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


@pytest.mark.parametrize(("chosen", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_uses_the_allocator_of_the_c_library_unless_another_is_chosen(chosen: str | None, used: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != ARROW_POOL}
    if chosen:
        environment[ARROW_POOL] = chosen
    command = [sys.executable, "-c", ROLE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [used], done.stderr
