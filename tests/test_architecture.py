"""Who may import what, and how large things may get: the rules of ARCHITECTURE.md, counted on the syntax trees."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assignor_core.execution.events import Event

ROOT = Path(__file__).resolve().parent.parent
CORE = sorted((ROOT / "assignor_core").rglob("*.py"))
SHELL = sorted((ROOT / "streaming").rglob("*.py"))
ROLES = ("collect", "pipeline", "control", "serve")

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
NESTING_MAX = 4

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


@pytest.mark.parametrize("path", SHELL, ids=relative)
def test_no_role_imports_another(path: Path) -> None:
    own = next((role for role in ROLES if f"streaming/{role}/" in relative(path)), None)
    if own is None:
        return
    others = [f"streaming.{role}" for role in ROLES if role != own]
    assert not [name for name in imports(path) if name.startswith(tuple(others))]


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


@pytest.mark.parametrize("path", CORE + SHELL, ids=relative)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    tree = ast.parse(text)
    assert path.name == "__main__.py" or ast.get_docstring(tree), "a module says what it owns"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"
            assert nesting(node) <= NESTING_MAX, f"{node.name} nests {nesting(node)} deep"
