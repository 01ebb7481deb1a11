"""Who may import what, and how large things may get: the rules of ARCHITECTURE.md, counted on the syntax trees."""

import ast
import builtins
import graphlib
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from assignor_core.execution.events import Event

ROOT = Path(__file__).resolve().parent.parent
CORE = sorted((ROOT / "assignor_core").rglob("*.py"))
SHELL = sorted((ROOT / "streaming").rglob("*.py"))

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 300
"""Lines of code: blank lines, comments and docstrings don't count."""
NESTING_MAX = 4

BELOW_A_ROLE = {"views", "tables", "cluster", "contract", "runtime"}
MAY_IMPORT = {
    "errors": set(),
    "settings": set(),
    "config": set(),
    "contract": set(),
    "tables": {"contract"},
    "cluster": {"runtime"},
    "runtime": {"tables"},
    "views": {"tables", "contract"},
    "client": {"tables", "views", "contract"},
    "collect": BELOW_A_ROLE,
    "pipeline": BELOW_A_ROLE,
    "control": BELOW_A_ROLE,
    "serve": BELOW_A_ROLE,
    "simulate": {"tables", "views", "contract", "config", "runtime"},
    "demo": {*BELOW_A_ROLE, "config"},
    "commands": {*BELOW_A_ROLE, "collect", "pipeline", "control", "serve", "simulate", "demo", "config"},
    "cli": {"commands"},
    "__main__": {"cli"},
    "consumer": {"client"},
    "weights": {"client"},
}
"""A room of the shell, and the rooms that it may import besides itself, `errors`, `settings` and the core. Downwards
only: a role imports no other role, and nothing imports what stands above it.
"""
CLOCKS = "streaming/runtime/clocks.py"
READS_A_CLOCK = {
    "streaming/control/lease.py": "its default clocks: tests hand it others",
}
"""Besides a role's run.py, the commands and the demo, the only modules that may ask a clock."""
ADMIN_WRITES = {
    "alter_configs", "alter_partition_reassignments", "create_partitions", "create_topics", "delete_groups",
    "delete_topics", "elect_leaders", "incremental_alter_configs", "alter_replica_log_dirs", "alter_group_offsets",
    "alter_client_id_quotas",
}  # fmt: skip
"""What changes a cluster, by kafka-python's names."""
SIGNALS = {
    "streaming/pipeline/delta_tables.py": "TooManyRows never leaves its module",
    "streaming/pipeline/adapters/normal.py": "Misfit becomes a rejected record",
}
"""Exceptions outside the two trees, each caught where it is raised."""

ONLY_IN = {
    "pyspark": ("streaming/pipeline/",),
    "kafka": ("streaming/cluster/", "streaming/collect/", "streaming/client/", "streaming/demo/"),
    "confluent_kafka": ("streaming/demo/",),
    "prometheus_client": ("streaming/serve/", "streaming/collect/jmx.py", "streaming/demo/measure.py"),
    "starlette": ("streaming/serve/",),
    "duckdb": ("streaming/commands/",),
    "matplotlib": ("streaming/demo/report.py", "streaming/simulate/plot.py",),
    "deltalake": ("streaming/tables/", "streaming/pipeline/", "streaming/serve/", "streaming/commands/"),
}  # fmt: skip
"""A library, and the only places that may import it."""

EVENT_ROWS = "streaming/views/executions.py"
"""The one module of the shell that turns rows into events of executions, and back."""
NO_EVENTS_OF_EXECUTIONS = {
    ("streaming/collect/observe.py", "refused"): "an answer of a broker",
    ("streaming/runtime/processes.py", "started"): "a process",
    ("streaming/demo/result.py", "measured"): "a moment of the demo",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest nesting of blocks inside a function."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        # `elif` is an If inside the orelse of an If: it reads as one level.
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        step = 1 if isinstance(child, blocks) and not chained else 0
        deepest = max(deepest, nesting(child, depth + step))
    return deepest


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_imports_itself_the_standard_library_and_numpy(path: Path) -> None:
    allowed = set(sys.stdlib_module_names) | {"assignor_core", "numpy"}
    assert {name.partition(".")[0] for name in imports(path)} <= allowed


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_libraries_stay_where_they_belong(path: Path) -> None:
    for name in imports(path):
        places = ONLY_IN.get(name.partition(".")[0])
        assert places is None or relative(path).startswith(places), f"{relative(path)} imports {name}"


def room(name: str) -> str:
    """The room of a module of the shell: the first part below `streaming`."""
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_imports_run_downwards_only(path: Path) -> None:
    own = room(relative(path).removesuffix(".py").replace("/", "."))
    allowed = {own, "errors", "settings", "", *MAY_IMPORT.get(own, set())}
    if own == "__init__":
        allowed = set()
    for name in imports(path):
        other = room(name) if name.startswith("streaming.") else own
        assert other in allowed or own == other, f"{relative(path)} imports {name}"


def test_rooms_that_are_named_exist() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "streaming").iterdir() if path.name != "__pycache__"}
    assert MAY_IMPORT.keys() == rooms - {"__init__"}
    tuple(graphlib.TopologicalSorter(MAY_IMPORT).static_order())  # raises CycleError, which names the cycle


def test_rooms_of_the_core_import_each_other_in_one_direction() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for path in CORE:
        own = relative(path).removesuffix(".py").split("/")[1]
        if own != "__init__":
            graph[own] |= {name.split(".")[1] for name in imports(path) if name.startswith("assignor_core.")} - {own}
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of what a file calls."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_asks_no_clock(path: Path) -> None:
    asked = [name for _, name in calls(path) if name.startswith(("time.", "datetime.now", "uuid."))]
    assert not asked
    assert not {"time", "datetime", "uuid", "secrets", "os", "socket"} & {
        name.partition(".")[0] for name in imports(path)
    }


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_the_wall_clock_is_asked_by_entries_and_handed_on(path: Path) -> None:
    name = relative(path)
    if name == CLOCKS:
        return
    wall = (
        "time.time",
        "time.time_ns",
        "time.clock_gettime",
        "time.clock_gettime_ns",
        "datetime.now",
        "datetime.utcnow",
    )
    assert not [(line, called) for line, called in calls(path) if called in wall]
    is_entry = name.endswith("/run.py") or name.startswith(("streaming/commands/", "streaming/demo/"))
    if not is_entry and name not in READS_A_CLOCK:
        assert not [name for name in imports(path) if name.startswith("streaming.runtime.clocks")]


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_only_the_room_of_the_cluster_changes_a_cluster(path: Path) -> None:
    if relative(path).startswith(("streaming/cluster/", "streaming/demo/")):
        return  # the demo's cluster is its own: it starts those brokers
    assert not [(line, name) for line, name in calls(path) if name.rpartition(".")[2] in ADMIN_WRITES]


@pytest.mark.parametrize("path", CORE + SHELL, ids=relative)
def test_errors_belong_to_one_of_the_two_trees(path: Path) -> None:
    if relative(path).endswith("/errors.py") or relative(path) in SIGNALS:
        return
    builtin = {name for name in dir(builtins) if name.endswith(("Error", "Exception"))}
    own = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    assert not [node.name for node in own if {ast.unparse(base) for base in node.bases} & builtin]


def logged_names(tree: ast.AST) -> set[ast.AST]:
    """First arguments of calls like `log.info("started")`: names of log lines."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    return {
        call.args[0]
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "log"
    }


def looks_up_event(node: ast.AST) -> bool:
    """Whether the node is like `row["event"]` or `row.get("event")`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "event"
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and any(isinstance(argument, ast.Constant) and argument.value == "event" for argument in node.args)
    )


def interpreted_events(name: str, tree: ast.AST) -> list[str]:
    """Where a module names an event of an execution, or compares the column `event`, itself."""
    logged = logged_names(tree)
    named = [
        f"{name}:{node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in set(Event)
        if node not in logged and (name, node.value) not in NO_EVENTS_OF_EXECUTIONS
    ]
    compared = [
        f"{name}:{node.lineno}: compares an event"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(looks_up_event(side) for side in (node.left, *node.comparators))
    ]
    return named + compared


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_what_events_of_executions_mean_is_decided_in_the_core(path: Path) -> None:
    if relative(path) != EVENT_ROWS:
        assert not interpreted_events(relative(path), ast.parse(path.read_text()))


@pytest.mark.parametrize(
    "line", ['ended = name == "done"', 'row["event"] in names', 'row.get("event") != name', 'FAILED = {"aborted"}']
)
def test_a_module_that_interprets_events_is_named(line: str) -> None:
    assert interpreted_events("streaming/serve/some.py", ast.parse(line))


def test_names_of_log_lines_are_no_events_of_executions() -> None:
    assert not interpreted_events("streaming/serve/some.py", ast.parse('log.info("measured", event_name=name)'))


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text()
    strings = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    prose = {line for node in strings for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    layout = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    held = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in layout)
    return frozenset(line for token in held for line in range(token.start[0], token.end[0] + 1)) - prose


@pytest.mark.parametrize("path", CORE + SHELL, ids=relative)
def test_modules_and_functions_stay_small(path: Path) -> None:
    lines = code_lines(path)
    assert len(lines) <= MODULE_LINES_MAX
    tree = ast.parse(path.read_text())
    assert path.name == "__main__.py" or ast.get_docstring(tree), "a module says what it owns"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            count = len(lines & set(range(node.lineno, node.end_lineno + 1)))
            assert count <= FUNCTION_LINES_MAX, f"{node.name} has {count} lines of code"
            assert nesting(node) <= NESTING_MAX, f"{node.name} nests {nesting(node)} deep"


def test_paths_that_the_page_names_exist() -> None:
    """ARCHITECTURE.md names files in full, so that a move of one shows here."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"\b(?:assignor_core|streaming|tests|deploy|docs|conf)/[\w./*-]*[\w*/]", page)
    assert named
    assert not [name for name in named if not list(ROOT.glob(name))]
