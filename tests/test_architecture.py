"""Who may import what, and how large things may get: the rules of ARCHITECTURE.md, counted on the syntax trees."""

import ast
import builtins
import graphlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

from assignor_core.execution.events import Event

ROOT = Path(__file__).resolve().parent.parent

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600
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
    "client": {"tables", "views", "contract", "runtime"},
    "collect": BELOW_A_ROLE,
    "pipeline": BELOW_A_ROLE,
    "control": BELOW_A_ROLE,
    "notify": {"tables", "views", "contract", "runtime"},
    "serve": {*BELOW_A_ROLE, "notify"},
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
    "streaming/control/cluster_snapshot.py": "its default clocks: tests hand it others",
    "streaming/cluster/tokens.py": "its default clock: tokens expire by the wall clock",
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
    "streaming/pipeline/adapters.py": "Misfit becomes a rejected record",
}
"""Exceptions outside the two trees, each caught where it is raised."""

ONLY_IN = {
    "pyspark": ("streaming/pipeline/",),
    "kafka": ("streaming/cluster/", "streaming/collect/", "streaming/client/", "streaming/demo/"),
    "botocore": ("streaming/cluster/tokens.py",),
    "gssapi": ("streaming/cluster/logins.py",),
    "confluent_kafka": ("streaming/cluster/record_sender.py", "streaming/demo/"),
    "prometheus_client": ("streaming/serve/", "streaming/collect/counters.py", "streaming/demo/measure.py"),
    "starlette": ("streaming/serve/",),
    "duckdb": ("streaming/commands/",),
    "joserfc": ("streaming/serve/access/",),
    "matplotlib": ("streaming/demo/report.py", "streaming/simulate/plot.py", "streaming/simulate/replay_plot.py"),
    "deltalake": ("streaming/tables/", "streaming/pipeline/", "streaming/serve/", "streaming/commands/"),
}  # fmt: skip
"""A library, and the only places that may import it."""

COMPILED = "assignor_core/planner/compiled.py"
"""The one module that imports numba."""

HANDED_ALL_SETTINGS = {"run_roles"}
"""Functions of one section whose caller hands all settings to any function of a kind."""

EVENT_ROWS = "streaming/views/executions.py"
"""The one module of the shell that turns rows into events of executions, and back."""
NO_EVENTS_OF_EXECUTIONS = {
    ("streaming/settings/clusters.py", "paused"): "what a cluster can be",
    ("streaming/collect/observe.py", "refused"): "an answer of a broker",
    ("streaming/runtime/processes.py", "started"): "a process",
    ("streaming/demo/result.py", "measured"): "a moment of the demo",
}


class Module:
    """A file of ours, read once for all rules: its name, its syntax tree, and what of it the rules are about."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = ast.parse(text)
        self.nodes = tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Dotted names of all modules that it imports, inside functions too."""
        names: list[str] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names += (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative import"
                names += (f"{node.module}.{alias.name}" for alias in node.names)
        return tuple(names)

    @cached_property
    def calls(self) -> tuple[tuple[int, str], ...]:
        """(line, dotted name) of what it calls."""
        return tuple(
            (node.lineno, ast.unparse(node.func))
            for node in self.nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        )

    @property
    def code_lines(self) -> set[int]:
        """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
        lines = enumerate(map(str.strip, self.text.splitlines()), start=1)
        code = {number for number, line in lines if line and not line.startswith("#")}
        texts = [node for node in self.nodes if isinstance(node, ast.JoinedStr) or is_string(node)]
        docstrings = [node for node in self.nodes if isinstance(node, ast.Expr) and is_string(node.value)]
        # A line of a text may be blank, or look like a comment.
        return (code | lines_of(texts)) - lines_of(docstrings)


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def lines_of(nodes: Iterable[ast.AST]) -> set[int]:
    """Numbers of all lines on which the nodes stand."""
    placed = (node for node in nodes if isinstance(node, ast.expr | ast.stmt))
    return {line for node in placed for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def modules_of(package: str) -> list[Module]:
    """All files of a package, by name."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    return [Module(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


@pytest.fixture(scope="module")
def core() -> list[Module]:
    return modules_of("assignor_core")


@pytest.fixture(scope="module")
def shell() -> list[Module]:
    return modules_of("streaming")


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest nesting of blocks inside a function."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.expr):  # no expression holds a block
            continue
        # `elif` is an If inside the orelse of an If: it reads as one level.
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        step = 1 if isinstance(child, blocks) and not chained else 0
        deepest = max(deepest, nesting(child, depth + step))
    return deepest


def test_the_core_imports_itself_the_standard_library_and_numpy_and_numba_in_one_place(core: list[Module]) -> None:
    allowed = set(sys.stdlib_module_names) | {"assignor_core", "numpy"}
    foreign = [
        f"{module.name} imports {name}"
        for module in core
        for name in module.imports
        if name.partition(".")[0] not in allowed and not (module.name == COMPILED and name.startswith("numba."))
    ]
    assert not foreign


def test_libraries_stay_where_they_belong(shell: list[Module]) -> None:
    misplaced = [
        f"{module.name} imports {name}"
        for module in shell
        for name in module.imports
        if not module.name.startswith(ONLY_IN.get(name.partition(".")[0], ""))
    ]
    assert not misplaced


def test_sign_in_has_one_door(shell: list[Module]) -> None:
    """Who may ask is decided behind `streaming.serve.access`: others take what its `__init__` names."""
    inner = tuple(f"streaming.serve.access.{path.stem}" for path in (ROOT / "streaming/serve/access").glob("[!_]*.py"))
    assert inner
    outside = [module for module in shell if not module.name.startswith("streaming/serve/access/")]
    assert not [
        f"{module.name} imports {name}" for module in outside for name in module.imports
        if name.startswith(tuple(f"{one}." for one in inner)) or name in inner
    ]  # fmt: skip


def room(name: str) -> str:
    """The room of a module of the shell: the first part below `streaming`."""
    return name.split(".")[1] if "." in name else ""


def upward_imports(module: Module) -> Iterator[str]:
    """Imports of rooms that the module's own room may not import."""
    own = room(module.name.removesuffix(".py").replace("/", "."))
    allowed = set() if own == "__init__" else {own, "errors", "settings", "", *MAY_IMPORT.get(own, set())}
    for name in module.imports:
        if name.startswith("streaming.") and room(name) not in {own, *allowed}:
            yield f"{module.name} imports {name}"


def test_imports_run_downwards_only(shell: list[Module]) -> None:
    assert not [line for module in shell for line in upward_imports(module)]


def sections_read(function: ast.FunctionDef) -> set[str] | None:
    """Sections that a function reads of all settings, if it asks for these and does nothing else with them."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    names = {one.arg for one in arguments if one.annotation and ast.unparse(one.annotation) == "Settings"}
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in names]
    read = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    ]
    return {node.attr for node in read} if read and len(uses) == len(read) else None


def test_a_function_that_reads_one_section_of_the_settings_asks_for_that(shell: list[Module]) -> None:
    too_wide = [
        f"{module.name}: {node.name} reads {sections}"
        for module in shell
        for node in module.nodes
        if isinstance(node, ast.FunctionDef) and len(sections := sections_read(node) or ()) == 1
        if node.name not in HANDED_ALL_SETTINGS
    ]
    assert not too_wide


def test_rooms_that_are_named_exist() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "streaming").iterdir() if path.name != "__pycache__"}
    assert MAY_IMPORT.keys() == rooms - {"__init__"}
    tuple(graphlib.TopologicalSorter(MAY_IMPORT).static_order())  # raises CycleError, which names the cycle


def test_rooms_of_the_core_import_each_other_in_one_direction(core: list[Module]) -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module in core:
        own = module.name.removesuffix(".py").split("/")[1]
        if own != "__init__":
            graph[own] |= {name.split(".")[1] for name in module.imports if name.startswith("assignor_core.")} - {own}
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def test_the_core_asks_no_clock(core: list[Module]) -> None:
    asks = ("time.", "datetime.now", "uuid.")
    assert not [
        f"{module.name}:{line}: {name}" for module in core for line, name in module.calls if name.startswith(asks)
    ]
    clocks = {"time", "datetime", "uuid", "secrets", "os", "socket"}
    assert not [(module.name, name) for module in core for name in module.imports if name.partition(".")[0] in clocks]


def test_the_wall_clock_is_asked_by_entries_and_handed_on(shell: list[Module]) -> None:
    wall = (
        "time.time",
        "time.time_ns",
        "time.clock_gettime",
        "time.clock_gettime_ns",
        "datetime.now",
        "datetime.utcnow",
    )
    others = [module for module in shell if module.name != CLOCKS]
    assert not [f"{module.name}:{line}: {name}" for module in others for line, name in module.calls if name in wall]
    entries = ("streaming/commands/", "streaming/demo/")
    handed_one = [
        module
        for module in others
        if not module.name.endswith("/run.py")
        and not module.name.startswith(entries)
        and module.name not in READS_A_CLOCK
    ]
    clocks = "streaming.runtime.clocks"
    assert not [(module.name, name) for module in handed_one for name in module.imports if name.startswith(clocks)]


def test_only_the_room_of_the_cluster_changes_a_cluster(shell: list[Module]) -> None:
    allowed = ("streaming/cluster/", "streaming/demo/")  # the demo's cluster is its own: it starts those brokers
    changes = [
        f"{module.name}:{line}: {name}"
        for module in shell
        for line, name in module.calls
        if name.rpartition(".")[2] in ADMIN_WRITES and not module.name.startswith(allowed)
    ]
    assert not changes


def test_errors_belong_to_one_of_the_two_trees(core: list[Module], shell: list[Module]) -> None:
    builtin = {name for name in dir(builtins) if name.endswith(("Error", "Exception"))}
    strays = [
        f"{module.name}:{node.lineno}: {node.name}"
        for module in core + shell
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & builtin
        if not module.name.endswith("/errors.py") and module.name not in SIGNALS
    ]
    assert not strays


def logged_names(module: Module) -> set[ast.AST]:
    """First arguments of calls like `log.info("started")`: names of log lines."""
    calls = (node for node in module.nodes if isinstance(node, ast.Call) and node.args)
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


def interpreted_events(module: Module) -> list[str]:
    """Where a module names an event of an execution, or compares the column `event`, itself."""
    logged, events = logged_names(module), set(Event)
    named = [
        f"{module.name}:{node.lineno}: {node.value!r}"
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in events
        if node not in logged and (module.name, node.value) not in NO_EVENTS_OF_EXECUTIONS
    ]
    compared = [
        f"{module.name}:{node.lineno}: compares an event"
        for node in module.nodes
        if isinstance(node, ast.Compare) and any(looks_up_event(side) for side in (node.left, *node.comparators))
    ]
    return named + compared


def test_what_events_of_executions_mean_is_decided_in_the_core(shell: list[Module]) -> None:
    assert not [line for module in shell if module.name != EVENT_ROWS for line in interpreted_events(module)]


@pytest.mark.parametrize(
    "line", ['ended = name == "done"', 'row["event"] in names', 'row.get("event") != name', 'FAILED = {"aborted"}']
)
def test_a_module_that_interprets_events_is_named(line: str) -> None:
    assert interpreted_events(Module("streaming/serve/some.py", line))


def test_names_of_log_lines_are_no_events_of_executions() -> None:
    assert not interpreted_events(Module("streaming/serve/some.py", 'log.info("measured", event_name=name)'))


def too_large(module: Module) -> Iterator[str]:
    """What of a module is over the limits, each in words."""
    lines = module.code_lines
    if len(lines) > MODULE_LINES_MAX:
        yield f"{module.name} has {len(lines)} lines of code"
    if not module.name.endswith("__main__.py") and not ast.get_docstring(module.tree):
        yield f"{module.name} has no docstring: a module says what it owns"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count, depth = len(lines & lines_of([node])), nesting(node)
            if count > FUNCTION_LINES_MAX:
                yield f"{module.name}: {node.name} has {count} lines of code"
            if depth > NESTING_MAX:
                yield f"{module.name}: {node.name} nests {depth} deep"


def test_modules_and_functions_stay_small(core: list[Module], shell: list[Module]) -> None:
    assert not [line for module in core + shell for line in too_large(module)]


def test_lines_of_code_are_those_without_blank_lines_comments_and_docstrings() -> None:
    owns, text = '"""What it\n\nowns."""\n\n', '# why\nNAME = """a\n\n# b\n"""  # its end\n\n\n'
    function = 'def of() -> int:\n    "One."\n    return 1\n'
    assert Module("some.py", owns + text + function).code_lines == {6, 7, 8, 9, 12, 14}


def test_paths_that_the_page_names_exist() -> None:
    """ARCHITECTURE.md names files in full, so that a move of one shows here."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"\b(?:assignor_core|streaming|tests|deploy|docs|conf)/[\w./*-]*[\w*/]", page)
    assert named
    assert not [name for name in named if not list(ROOT.glob(name))]


def shared_class_names(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Modules by name of a class that more than one of them defines. A name with an underscore is nobody else's."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_the_name_of_a_class_means_one_thing(core: list[Module], shell: list[Module]) -> None:
    assert shared_class_names(core + shell) == {}


def test_a_name_of_two_classes_is_noticed() -> None:
    modules = [Module("a.py", "class Load: ...\nclass _Own: ..."), Module("b.py", "class Load: ...\nclass _Own: ...")]
    assert shared_class_names(modules) == {"Load": ["a.py", "b.py"]}
