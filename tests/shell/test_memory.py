"""Roles that read tables again and again leave no freed memory with Arrow's own allocator."""

import os
import subprocess
import sys

import pytest

from streaming.runtime.memory import ARROW_POOL

ROLE = """
import sys, types
from streaming.commands import roles

def shown(*_arguments):
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
    return 0

name = sys.argv[1]
assert "pyarrow" not in sys.modules
sys.modules[f"streaming.{name}.run"] = types.SimpleNamespace(**{f"run_{name}": shown})
getattr(roles, name).main([], standalone_mode=False)
"""


@pytest.mark.parametrize("role", ["control", "serve"])
@pytest.mark.parametrize(("chosen", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_uses_the_allocator_of_the_c_library_unless_another_is_chosen(
    role: str, chosen: str | None, used: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != ARROW_POOL}
    if chosen:
        environment[ARROW_POOL] = chosen
    command = [sys.executable, "-c", ROLE, role]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [used], done.stderr
