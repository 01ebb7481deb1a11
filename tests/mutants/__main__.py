"""Mutation testing as a command: how many small changes of a module some pure test notices.

    make mutants                                     # every module of the list
    make mutants ARGS="assignor_core/skew.py"        # one of them
    make mutants ARGS="--every 5"                    # every fifth mutation
    make mutants ARGS="--again build/mutants.json"   # only those that survived the run before

Survivors are shown as they come. `equivalent.toml` names those that no test can notice, with the reason.
"""

import argparse
import ast
import json
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutants.modules import TESTS
from tests.mutants.mutations import Mutation, mutated, mutations
from tests.mutants.runs import Covering, Session, import_libraries, passes_anew

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
CPU_FACTOR, CPU_SPARE_S = 4, 8
"""A mutation may take so many times the CPU time of its tests, and so many seconds besides."""


def main() -> int:
    """Run, print one line for each survivor and each module; 1 if one survived that is not named as equivalent."""
    options = _options()
    os.nice(options.nice)
    import_libraries()
    paths = options.modules or sorted(TESTS)
    again = None if options.again is None else json.loads(options.again.read_text())
    survivors: dict[str, list[list[str]]] = {}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = dict.fromkeys(file for path in paths for file in TESTS[path])
    with Session(list(files), paths) as session:
        for path in paths:
            rows = mutations(Path(path).read_text())
            chosen = rows[:: options.every]
            if again is not None:
                chosen = [row for row in chosen if [row.before, row.after] in again.get(path, ())]
            print(f"{path}: {len(chosen)} of {len(rows)} mutations", flush=True)
            survivors[path] = _run_module(path, chosen, session)
            options.out.write_text(json.dumps(survivors, indent=1))
    return int(any(survivors.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description="Which small changes of a module no test notices")
    parser.add_argument("modules", nargs="*", choices=[[], *sorted(TESTS)], help="paths; all that are listed if none")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th mutation of a module")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the survivors that this file names")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.json"), help="file for the survivors")
    parser.add_argument("--nice", type=int, default=10, help="by how much to lower the priority")
    return parser.parse_args()


def _run_module(path: str, chosen: Sequence[Mutation], session: Session) -> list[list[str]]:
    """(before, after) of each survivor that is not named as equivalent; prints them and the figures."""
    began_s = time.perf_counter()
    _check_unchanged(path, session)
    equivalent = _listed_equivalents(path)
    outcomes: Counter[str] = Counter()
    survivors = []
    for mutation in chosen:
        is_listed = (mutation.before, mutation.after) in equivalent
        outcome = "killed"
        if _survives(path, mutation, session):
            outcome = "equivalent" if is_listed else "survived"
        elif is_listed:
            print(f"{path}:{mutation.line}: listed in {EQUIVALENT.name}, and killed: {mutation.after}", flush=True)
        outcomes[outcome] += 1
        if outcome == "survived":
            survivors.append([mutation.before, mutation.after])
            print(f"{path}:{mutation.line}\n  - {mutation.before}\n  + {mutation.after}", flush=True)
    counts = ", ".join(f"{outcomes[name]} {name}" for name in ("killed", "equivalent", "survived"))
    print(f"{path}: {counts}, {time.perf_counter() - began_s:.0f} s", flush=True)
    return survivors


def _check_unchanged(path: str, session: Session) -> None:
    """Raises RuntimeError if the tests of a module fail without any mutation when they are run as for one."""
    tests = _ordered(row for row in session.tests if row.nodeid.partition("::")[0] in TESTS[path])
    if not session.passes(path, None, "", *tests) or not passes_anew(path, ast.parse(Path(path).read_text()), *tests):
        raise RuntimeError(f"{path}: its tests fail without any mutation when the quickest are run first")


def _survives(path: str, mutation: Mutation, session: Session) -> bool:
    """Whether every test that may notice the mutation passes; the quickest are run first."""
    tests = [row for row in session.tests if row.nodeid.partition("::")[0] in TESTS[path]]
    if mutation.function:
        chosen = [row for row in tests if (path, mutation.function) in row.functions]
        return not chosen or session.passes(path, mutation.number, mutation.function, *_ordered(chosen))
    # A test that calls no function of these modules may still look at a constant.
    chosen = [row for row in tests if not row.functions or any(file == path for file, _ in row.functions)]
    return passes_anew(path, mutated(Path(path).read_text(), mutation.number), *_ordered(chosen))


def _ordered(tests: Iterable[Covering]) -> tuple[list[str], float]:
    """Ids of the tests, the quickest first, and the CPU time that they may take."""
    rows = sorted(tests, key=lambda row: row.cpu_s)
    return [row.nodeid for row in rows], CPU_FACTOR * sum(row.cpu_s for row in rows) + CPU_SPARE_S


def _listed_equivalents(path: str) -> set[tuple[str, str]]:
    rows = tomllib.loads(EQUIVALENT.read_text()).get("mutation", ())
    return {(row["before"], row["after"]) for row in rows if row["path"] == path}


if __name__ == "__main__":
    sys.exit(main())
