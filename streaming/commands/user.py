"""`rebalancer user add|list|remove|role|password`: people who sign in with a password, in `serve.users_file`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from streaming.commands.console import echo
from streaming.commands.options import (
    Command,
    accounts_file,
    role_option,
    roles_from,
    settings_of_clusters,
    shared_settings_options,
)
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.accounts import (
    PASSWORD_LENGTH_MAX,
    Roles,
    User,
    new_user,
    one_change,
    read_users,
    write_users,
)
from streaming.runtime.accounts import USERS_FILE as WHAT
from streaming.settings import Settings
from streaming.tables import utc

PASSWORD_BYTES_MAX = 8 * PASSWORD_LENGTH_MAX


def password_option(command: Command) -> Command:
    """Adds --password-file."""
    return click.option(
        "--password-file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="File with the password in its first line; - is standard input.  [default: ask on the terminal]",
    )(command)


@click.group()
def user() -> None:
    """People who sign in on the page with a password; serve sees a change of the file at the next request."""


@user.command()
@click.argument("name")
@role_option
@password_option
@shared_settings_options
def add(
    name: str,
    roles: tuple[str, ...],
    password_file: Path | None,
    config_file: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Add NAME, who is not there yet."""
    clusters = settings_of_clusters(config_file, assignments)
    file, given = _file(clusters), roles_from(roles, clusters)
    _refuse_known(_known(file), name)
    made = _made(name, given, _password(password_file))
    with _changed(file) as users:
        _refuse_known(users, name)
        users[name] = made
    echo(f"user {name} is added, role {given}")
    return 0


@user.command("list")
@shared_settings_options
def list_users(config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Show each user's role, name, and when role or password were set."""
    for row in read_users(_file(settings_of_clusters(config_file, assignments))).values():
        echo(f"{row.roles!s:8}  since {utc(row.changed_ms):%Y-%m-%d %H:%M}  {row.name}")
    return 0


@user.command()
@click.argument("name")
@shared_settings_options
def remove(name: str, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Remove NAME; their sessions end at the next request."""
    with _changed(_file(settings_of_clusters(config_file, assignments))) as users:
        del users[_who(users, name).name]
    echo(f"user {name} is removed")
    return 0


@user.command("role")
@click.argument("name")
@role_option
@shared_settings_options
def change_role(name: str, roles: tuple[str, ...], config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Give NAME another role; their sessions end at the next request."""
    clusters = settings_of_clusters(config_file, assignments)
    given = roles_from(roles, clusters)
    with _changed(_file(clusters)) as users:
        users[name] = replace(_who(users, name), roles=given, changed_ms=clocks.now_ms())
    echo(f"user {name} has role {given}")
    return 0


@user.command()
@click.argument("name")
@password_option
@shared_settings_options
def password(name: str, password_file: Path | None, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Set another password for NAME.

    Their sessions end at the next request.
    """
    file = _file(settings_of_clusters(config_file, assignments))
    made = _made(name, _who(_known(file), name).roles, _password(password_file))
    with _changed(file) as users:
        users[name] = replace(made, roles=_who(users, name).roles)
    echo(f"user {name} has another password")
    return 0


def _file(clusters: Mapping[str, Settings]) -> Path:
    return accounts_file(clusters, "users_file", "users")


def _known(file: Path) -> dict[str, User]:
    return read_users(file) if file.exists() else {}


@contextmanager
def _changed(file: Path) -> Iterator[dict[str, User]]:
    with one_change(file, WHAT):
        users = _known(file)
        yield users
        write_users(file, users.values())


def _refuse_known(users: dict[str, User], name: str) -> None:
    if name in users:
        raise UsageProblem(f"user {name!r}: is there already; `rebalancer user password` sets another password")


def _who(users: dict[str, User], name: str) -> User:
    if name not in users:
        raise UsageProblem(f"user {name!r}: is unknown; `rebalancer user list` shows names")
    return users[name]


def _made(name: str, roles: Roles, password: str) -> User:
    try:
        return new_user(name, roles, password, now_ms=clocks.now_ms())
    except ValueError as error:
        raise UsageProblem(str(error)) from None


def _password(file: Path | None) -> str:
    """The password, from the terminal where no file is named; it is shown nowhere."""
    if file is None:
        if not sys.stdin.isatty():
            raise UsageProblem("password: no terminal to ask on: use --password-file FILE, or - for standard input")
        asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    try:
        if str(file) == "-":
            content = sys.stdin.buffer.read(PASSWORD_BYTES_MAX)
        else:
            with file.open("rb") as opened:
                content = opened.read(PASSWORD_BYTES_MAX)
        return content.decode().partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise UsageProblem(f"password file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"password file {file}: is no UTF-8") from None
