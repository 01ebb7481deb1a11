"""Runs pure tests on mutated modules, each time in a fork.

Most mutations change a function's code: they are put into a fork of a process that has collected the tests already.
What only an import makes, constants and defaults of fields, is put into a fork that imports the project anew.
"""

import ast
import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import IO, Any, Self

import hypothesis
import pytest

from tests.mutants.mutations import mutated

LIBRARIES = ("hypothesis.strategies", "numpy", "pydantic", "yaml")
"""What nearly all tests import besides the project."""
NO_JVM = "not spark and not kafka and not java and not prometheus and not e2e"
OPTIONS = ("-q", "--exitfirst", "--assert=plain", "--capture=sys", "-p", "no:cacheprovider", "-m", NO_JVM)
EXAMPLES = 30
WALL_LIMIT_S = 600
BROKEN = 70
"""Exit code of a fork that failed by itself, and not by a test; pytest has none that is so high."""
DATA_LIMIT_BYTES = 3 << 30


@dataclass(frozen=True, slots=True)
class Covering:
    """A test that has passed on the modules as they are: CPU time, and (file, function) of what it called."""

    nodeid: str
    cpu_s: float
    functions: frozenset[tuple[str, str]]


class Session:
    """A process that has collected tests and runs them on request, each time in a fork of itself."""

    def __init__(self, files: Sequence[str], paths: Sequence[str]) -> None:
        """Run all tests of `files` once; raises RuntimeError if one fails on the modules `paths` as they are."""
        requests, self._requests = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
        self._answers, answers = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))

        def serve() -> int:
            self._requests.close()
            self._answers.close()
            return int(pytest.main([*OPTIONS, *files], plugins=[_Server(requests, answers, paths)]))

        self._pid = _forked(serve)
        requests.close()
        answers.close()
        rows = self._answer()
        self.tests = [Covering(nodeid, cpu_s, frozenset(map(tuple, called))) for nodeid, cpu_s, called in rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        os.waitpid(self._pid, 0)
        self._answers.close()

    def passes(self, path: str, number: int | None, function: str, nodeids: Sequence[str], cpu_limit_s: float) -> bool:
        """Whether the tests pass, in that order, with this mutation of a function; with none if `number` is None.

        A run that takes more CPU time, memory or time than it may has failed.
        """
        print(json.dumps([path, number, function, nodeids, cpu_limit_s]), file=self._requests, flush=True)
        return bool(self._answer())

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("tests fail without any mutation: run pytest on the files of tests/mutants/modules.py")
        return json.loads(line)


class _Server:
    """The pytest plugin of a session: takes the place of pytest's own loop over the tests."""

    def __init__(self, requests: IO[Any], answers: IO[Any], paths: Sequence[str]) -> None:
        self._requests = requests
        self._answers = answers
        self._paths = paths

    def pytest_collection(self) -> None:
        """Fewer examples than usual: what survives costs all of them."""
        hypothesis.settings.register_profile("few", parent=hypothesis.settings(), max_examples=EXAMPLES)
        hypothesis.settings.load_profile("few")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        with tempfile.TemporaryFile("w+") as rows:
            if _code(_forked(lambda: self._record(session.items, rows))) != 0:
                return True
            rows.seek(0)
            print(rows.read(), file=self._answers, flush=True)
        items = {item.nodeid: item for item in session.items}
        for line in self._requests:
            path, number, function, nodeids, cpu_limit_s = json.loads(line)
            chosen = [items[nodeid] for nodeid in nodeids]
            run = partial(_run_mutated, path, number, function, chosen, cpu_limit_s)
            passed = _code(_forked(run)) == 0
            print(json.dumps(passed), file=self._answers, flush=True)
        return True

    def _record(self, items: Sequence[pytest.Item], stream: IO[str]) -> int:
        functions: set[tuple[str, str]] = set()
        for path in self._paths:
            _note_calls(path, functions)
        rows = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            functions.clear()
            began_s = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            rows.append([item.nodeid, time.process_time() - began_s, sorted(functions)])
        json.dump(rows, stream)
        stream.flush()
        return int(items[0].session.testsfailed)


def import_libraries() -> None:
    """Import what every fork needs."""
    for name in LIBRARIES:
        importlib.import_module(name)


def passes_anew(path: str, tree: ast.Module, nodeids: Sequence[str], cpu_limit_s: float) -> bool:
    """Whether the tests pass, in that order, where the import of the module at `path` takes `tree` for its source."""

    def run() -> int:
        _limit(cpu_limit_s)
        sys.meta_path.insert(0, _Finder(path, tree))
        files = sorted({nodeid.partition("::")[0] for nodeid in nodeids})
        return int(pytest.main([*OPTIONS, *files], plugins=[_Selection(nodeids)]))

    return _code(_forked(run)) == 0


def _run_mutated(path: str, number: int | None, function: str, items: Sequence[pytest.Item], cpu_limit_s: float) -> int:
    """In a fork: put the mutation into the function of that name, and run the tests until one fails."""
    _limit(cpu_limit_s)
    if number is not None:
        code = compile(mutated(Path(path).read_text(), number), path, "exec", dont_inherit=True)
        exchange_code(importlib.import_module(_module(path)), code, function)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return 1
    return 0


def _note_calls(path: str, functions: set[tuple[str, str]]) -> None:
    """From now on each call of a function of the module adds its path and name."""
    tree = ast.parse(Path(path).read_text())
    names = []
    owners: list[ast.Module | ast.ClassDef] = [tree, *(row for row in tree.body if isinstance(row, ast.ClassDef))]
    for owner in owners:
        for row in owner.body:
            if isinstance(row, ast.FunctionDef):
                names.append(f"{owner.name}.{row.name}" if isinstance(owner, ast.ClassDef) else row.name)
                row.body.insert(0, ast.parse(f"__note_call__(({path!r}, {names[-1]!r}))").body[0])
    module = importlib.import_module(_module(path))
    module.__dict__["__note_call__"] = functions.add
    code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    for name in names:
        exchange_code(module, code, name)


def exchange_code(module: ModuleType, code: CodeType, name: str) -> None:
    """Put the function of that name, as in the code of the mutated module, into the function that all others know."""
    namespace: dict[str, Any] = {"__name__": module.__name__}
    exec(code, namespace)  # noqa: S102  # the mutated source is this project's own
    for old, new in zip(_functions(module.__dict__, name), _functions(namespace, name), strict=True):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _functions(namespace: Mapping[str, Any], name: str) -> list[FunctionType]:
    """The function or method of that name; of a property, or under a decorator that wraps it, what it is made of."""
    owner, _, attribute = name.rpartition(".")
    value = vars(namespace[owner])[attribute] if owner else namespace[attribute]
    if isinstance(value, property):
        value = value.fget
    return [unwrap(value if isinstance(value, FunctionType) else value.__func__)]


class _Selection:
    """A pytest plugin: these tests only, in this order."""

    def __init__(self, nodeids: Sequence[str]) -> None:
        self._nodeids = nodeids

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[nodeid] for nodeid in self._nodeids]


class _Finder(MetaPathFinder):
    """Finds the mutated module first."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self._name = _module(path)
        self._tree = tree

    def find_spec(self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._tree)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, tree: ast.Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._tree, self.get_filename(fullname), "exec", dont_inherit=True)
        return code


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _limit(cpu_s: float) -> None:
    """Limits of this process from now on."""
    seconds = int(time.process_time() + cpu_s + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT_BYTES, DATA_LIMIT_BYTES))


def _forked(run: Callable[[], int]) -> int:
    """The id of a child that runs this, silently, and exits with its result."""
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        with contextlib.suppress(Exception):
            code = run()
    finally:
        os._exit(code)


def _code(pid: int) -> int:
    """Exit code of a child that may run for `WALL_LIMIT_S`."""
    descriptor = os.pidfd_open(pid)
    try:
        if not select.select([descriptor], [], [], WALL_LIMIT_S)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == BROKEN:
        raise RuntimeError("a fork ended before it could run its tests")
    return code
