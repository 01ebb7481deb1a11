"""The command `rebalancer`: which commands there are, and how errors become one line and an exit code.

Commands are loaded when they are called, so that `rebalancer assign` starts without Spark, Kafka or Delta. Exit codes:
0 done, 1 failed, 2 wrong use or bad input, 3 refused for safety, 4 of the pipeline a query died (docs/exit-codes.md).
Commands return them; none ends the process itself.
"""

import atexit
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import click
from click.exceptions import NoSuchCommand

from assignor_core.errors import CoreError, InputError
from streaming.commands.console import echo
from streaming.errors import BEGIN_ANEW, RebalancerError, SettingsRefused

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("streaming.commands.demo:demo", "The main job on embedded brokers: from skew to balance, live."),
    "run": ("streaming.commands.roles:run", "All roles on a real cluster."),
    "collect": ("streaming.commands.roles:collect", "Sample brokers and groups into the two topics."),
    "pipeline": ("streaming.commands.roles:pipeline", "Spark: the two topics into Delta tables."),
    "control": ("streaming.commands.roles:control", "Decide, plan and (in mode apply) act."),
    "serve": ("streaming.commands.roles:serve", "Metrics, API and page."),
    "status": ("streaming.commands.status:status", "Brokers, load, skew, last decision, plan and execution."),
    "lag": ("streaming.commands.lag:lag", "Consumer groups by verdict, worst first, and why."),
    "plan": ("streaming.commands.plan:plan", "A plan from the newest windows, or from a cluster model."),
    "apply": ("streaming.commands.apply:apply", "Carry out exactly that plan."),
    "abort": ("streaming.commands.apply:abort", "Stop the execution under way; finished moves stay."),
    "drain": ("streaming.commands.lifecycle:drain", "Empty a broker or a log dir, and keep it empty."),
    "undrain": ("streaming.commands.lifecycle:undrain", "End a drain, and move nothing."),
    "add": ("streaming.commands.lifecycle:add", "Give a new or drained broker its share."),
    "demote": ("streaming.commands.demotion:demote", "Take all leadership off a broker, and keep it off."),
    "undemote": ("streaming.commands.demotion:undemote", "End a demotion: it leads again what it led."),
    "restart-check": (
        "streaming.commands.restart_check:restart_check_command",
        "Whether a broker may be restarted now, and why not.",
    ),
    "roll": ("streaming.commands.roll:roll", "Restart brokers one by one, when it is safe."),
    "backtest": ("streaming.commands.backtest:backtest", "The trigger over the load of the past, under any settings."),
    "what-if": ("streaming.commands.what_if:what_if", "Recorded hours with brokers, traffic or topics changed."),
    "check": ("streaming.commands.check:check", "Cluster, topics, tables, leftover throttles, permissions."),
    "assign": ("streaming.commands.assign:assign", "JSON lines in, one consumer assignment a line out."),
    "place": ("streaming.commands.place:place", "JSON lines in, one replica placement a line out."),
    "simulate": ("streaming.commands.simulate:simulate", "A group's rebalances under each protocol and assignor."),
    "sql": ("streaming.commands.sql:sql", "SELECT over the Delta tables, no Spark needed."),
    "tables": (
        "streaming.commands.tables:tables",
        "Tables of an earlier release: add what they lack; register tables in a catalog.",
    ),
    "token": ("streaming.commands.sign_ins:token", "API tokens: create, list, revoke."),
    "user": ("streaming.commands.sign_ins:user", "People who sign in on the page: add, list, remove, role, password."),
    "config": ("streaming.commands.config:config", "Effective settings and where each came from."),
}


WITHOUT_PANDAS = frozenset(
    {
        "collect", "control", "serve", "status", "lag", "sql", "tables", "apply", "abort", "drain", "add", "demote",
        "undemote", "what-if",
        "restart-check", "roll",
    }
)  # fmt: skip
"""Commands that end in no Spark, alone in their process."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What standard output answers where a file is behind it that takes no more."""


class _Absent(MetaPathFinder):
    """Finds nothing under these names, and ends the search."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns None for every other module; raises ModuleNotFoundError for a module left out."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def leave_out(*names: str) -> None:
    """Makes these modules count as not installed in this process, from now on.

    pyarrow imports pandas, if it is there, to see whether a value is one of its: 0.3 s of CPU and 40 MiB for a process
    in which no value is. pyspark alone needs it.
    """
    sys.meta_path.insert(0, _Absent(frozenset(names)))


class LazyCommands(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Names in the order of a working day, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; raises NoSuchCommand, which suggests the nearest name."""
        try:
            return super().resolve_command(context, arguments)
        except NoSuchCommand as error:  # click looks among the commands that are loaded, and none is
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=context) from None

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a command, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-load-rebalancer", prog_name="rebalancer")
def rebalancer() -> None:
    """Watches the load of Kafka brokers and consumer groups, and rebalances by load instead of by count."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code and prints errors on standard error: one line, or one a setting."""
    stdout = sys.stdout
    try:
        result = rebalancer.main(list(arguments), prog_name="rebalancer", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 128 + signal.SIGINT)
    except SettingsRefused as error:
        return max(_fail(problem, exit_code_of(type(error))) for problem in error.problems)
    except (RebalancerError, CoreError) as error:
        return _fail(str(error), exit_code_of(type(error)))
    except SystemExit as leaving:
        # A reader that has gone (head, less) has all it wanted. click leaves with 1 then, and with a stream of its own
        # in the place of standard output; rich while it handles the broken pipe.
        gone = sys.stdout is not stdout or isinstance(leaving.__context__, BrokenPipeError)
        return 0 if gone else int(leaving.code or 0)
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        return _fail(f"output can't be written: {error.strerror}", 1)


def exit_code_of(error: type[Exception]) -> int:
    """What a command ends with if this error of ours ends it."""
    if issubclass(error, RebalancerError):
        return error.exit_code
    return 2 if issubclass(error, InputError) else 1


def _fail(message: str, code: int) -> int:
    echo(f"error: {' '.join(message.split())}", err=True)
    return code


def main() -> None:
    """Entry point of the console script. Ends the process without Python's own end.

    Threads of Arrow and delta-rs may still run then, and on a busy machine now and then one of them is torn down in a
    way that aborts the process (134) after all was done. What asked to be called at exit is; a command that has ended
    has nothing else left, its brokers, JVM and child processes are ended by itself.
    """
    if sys.argv[1:2] and sys.argv[1] in WITHOUT_PANDAS:
        leave_out("pandas")
    # Whoever closes them (`>&-`) wants nothing printed; to Python and the libraries it would be an error.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal can't show ends no command
    code = run(sys.argv[1:])
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            code = code or _fail(f"output can't be written: {error.strerror}", 1)
    if code == BEGIN_ANEW:  # files and connections of before are closed by this
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the command line that started this process
    os._exit(code)
