"""docs/exit-codes.md: `PYTHONPATH=. .venv/bin/python deploy/site/exit_codes.py > docs/exit-codes.md`.

Which errors there are and their codes come from the code. What a command's own codes mean there stands here. A test
runs this again and compares.
"""

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from assignor_core.errors import InputError
from streaming.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streaming", "assignor_core")

HEAD = """# Exit codes

After this page a script of yours can act on how a command ended. `deploy/site/exit_codes.py` generates the page.

A command that fails prints one line on standard error, `error: ...`. It names the thing, the value found and the value
allowed. Wrong settings have a line each.

| code | meaning | what to do |
|---|---|---|
| 0 | done | |
| 1 | failed | read the line; often the cluster, a table or a disk was not available, and a retry helps |
| 2 | wrong use or bad input; nothing was changed | correct the option, setting, file or record that the line names |
| 3 | refused for safety, or a person answered no | read why; a retry gives the same answer until the reason is gone |
| 4 | a query of the pipeline died | start the pipeline again; the log has `query_failed` |
| 130 | interrupted by Ctrl-C before the command could end by itself | |

A signal that ends a process gives 128 plus its number, as usual. A mistake in the program itself prints a traceback
and gives 1. If the reader of a pipe has gone (`rebalancer status | head`), the code is 0. If the disk below standard
output is full, it is 1.

## Codes by command

Each command ends with 0 once it has done or shown what it is for. An error ends it with a code of the table above.
These codes have a meaning of their own:
"""
ERRORS_HEAD = """## Errors of `assign` and `place`

If a line can't be used, its answer has the error's name (`type`) and message. The command continues with the next line
and ends with 0. `InputTooLarge` is the type of a line that needs more memory than there is.
"""

STOPPED = "SIGTERM or SIGINT stopped it"
NOT_APPLIED = (
    "with `--apply`: the broker or log dir can't be emptied, a partition would have no leader, the plan was refused, "
    "another person has to approve it first, or the answer was no"
)
OWN_CODES: Mapping[str, Mapping[str, str]] = {
    "demo": {
        "0": "the brokers measured a balance within 1.05, and no acknowledged record is lost",
        "1": "one of both was not reached",
        "3": "another demo runs in the folder of `--home`; nothing of it was touched",
    },
    "run": {
        "0": STOPPED,
        "2": "the first start of a role ended with 2: settings are wrong",
        "3": "another `rebalancer run` uses the same tables; the line names its process",
        "another": "that of a role which failed again and again when SIGTERM or SIGINT came",
    },
    "collect": {"0": STOPPED},
    "pipeline": {
        "0": STOPPED,
        "3": "checkpoints, tables or topics don't fit, or another pipeline runs ([pipeline.md](pipeline.md))",
        "4": "a query died",
    },
    "control": {"0": STOPPED},
    "serve": {"0": STOPPED},
    "status": {},
    "lag": {},
    "plan": {},
    "apply": {
        "0": "every movement was made, or the approval waits: for `--at`, or for another person",
        "1": "the execution was aborted or failed",
        "3": "the plan was refused, or the answer to the question was no; nothing was changed",
    },
    "abort": {},
    "drain": {
        "1": "with `--apply`: the execution was aborted or failed",
        "3": NOT_APPLIED,
    },
    "demote": {
        "1": "with `--apply`: the execution was aborted or failed",
        "3": NOT_APPLIED,
    },
    "undemote": {
        "1": "with `--apply`: the execution was aborted or failed",
        "3": NOT_APPLIED,
    },
    "undrain": {},
    "add": {
        "1": "with `--apply`: the execution was aborted or failed",
        "3": NOT_APPLIED,
    },
    "restart-check": {
        "0": "the broker may be restarted now",
        "3": "it should not be restarted now, also not after `--wait`; the line names the reason",
    },
    "roll": {
        "0": "all brokers are restarted; with `--abort` no roll is open; with `--dry-run` or `--status` it is shown",
        "1": "the command of `--exec` failed, or a broker was not seen away or did not return within `--wait`: the "
        "roll stays open; or a person has aborted it",
        "3": "a broker was not safe to restart within `--wait`, or never is; nobody restarted it; its plan was "
        "refused; another roll is open; `control.approvals` is above 1; the answer was no",
    },
    "backtest": {},
    "what-if": {},
    "check": {"1": "a check failed or could not be made"},
    "assign": {"0": "every line has its answer, also if that is an error"},
    "place": {"0": "every line has its answer, also if that is an error"},
    "simulate": {},
    "sql": {},
    "tables": {},
    "token": {},
    "user": {},
    "config": {},
}


def render() -> str:
    """The whole page."""
    alike: dict[tuple[str, str], list[str]] = {}
    for command in COMMANDS:
        for code, meaning in OWN_CODES[command].items():
            alike.setdefault((code, meaning), []).append(f"`{command}`")
    commands = [f"| {', '.join(names)} | {code} | {meaning} |" for (code, meaning), names in alike.items()]
    errors = [f"| `{error.__name__}` | {_meaning(error)} |" for error in input_errors()]
    return "\n".join(
        [HEAD, "| command | code | meaning |", "|---|---|---|", *commands, "",
         ERRORS_HEAD, "| error | meaning |", "|---|---|", *errors, ""]
    )  # fmt: skip


def input_errors() -> list[type[Exception]]:
    """Every class of errors of an input, which `streaming/commands/json_lines.py` answers by name."""
    known = {InputError.__name__: InputError}
    classes = dict(_classes())
    while grown := {name for name, (_, bases) in classes.items() if bases & known.keys()} - known.keys():
        for name in grown:
            known[name] = getattr(importlib.import_module(classes[name][0]), name)
    return sorted(known.values(), key=lambda error: error.__name__)


def _classes() -> Iterator[tuple[str, tuple[str, set[str]]]]:
    """(name, (module, names of its bases)) of each class; found in the text, so that only errors are imported."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    yield node.name, (module, {ast.unparse(base) for base in node.bases})


def _meaning(error: type[Exception]) -> str:
    """The first paragraph of its docstring in one line, without what the head of the page states for all errors."""
    first = (error.__doc__ or "").partition("\n\n")[0].partition("; the message")[0].rstrip(".") + "."
    return " ".join(first.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(render(), end="")
