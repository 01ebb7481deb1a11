"""`rebalancer token` and `rebalancer user`: who may ask serve, in `serve.tokens_file` and `serve.users_file`."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from streaming.commands.console import echo
from streaming.commands.options import Command, settings_of_clusters, shared_settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.accounts import (
    NAME_LENGTH_MAX,
    PASSWORD_LENGTH_MAX,
    TOKENS_FILE,
    USERS_FILE,
    Role,
    Roles,
    User,
    new_token,
    new_user,
    one_change,
    read_tokens,
    read_users,
    write_tokens,
    write_users,
)
from streaming.settings import DAY_MS, Settings
from streaming.tables import utc

PASSWORD_BYTES_MAX = 8 * PASSWORD_LENGTH_MAX


def role_option(command: Command) -> Command:
    """Adds --role, which may be repeated; the command takes `roles` as texts for `_roles_from`."""
    return click.option(
        "--role",
        "roles",
        metavar="[CLUSTER=]ROLE",
        multiple=True,
        default=("viewer",),
        show_default=True,
        help=f"A role on all clusters, or on one; may be repeated. Roles: {', '.join(Role)}. A role on a named cluster "
        "wins there.",
    )(command)


def password_option(command: Command) -> Command:
    """Adds --password-file."""
    return click.option(
        "--password-file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="File with the password in its first line; - is standard input.  [default: ask on the terminal]",
    )(command)


@click.group()
def token() -> None:
    """API tokens for programs and people who act by HTTP; serve sees a change of the file at the next request."""


@token.command()
@click.argument("name")
@role_option
@click.option(
    "--days", type=click.IntRange(1, 3_650), default=90, show_default=True, help="Days until the token expires."
)
@shared_settings_options
def create(name: str, roles: tuple[str, ...], days: int, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Make a token for NAME and print it.

    It is shown this once: the file keeps a hash.
    """
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise UsageProblem(f"token name: must be 1 to {NAME_LENGTH_MAX} printable characters, has {len(name)}")
    now_ms, clusters = clocks.now_ms(), settings_of_clusters(config_file, assignments)
    given = _roles_from(roles, clusters)
    text, made = new_token(name, given, now_ms=now_ms, expires_ms=now_ms + days * DAY_MS)
    with one_change(_tokens_file(clusters), TOKENS_FILE) as file:
        known = read_tokens(file) if file.exists() else {}
        write_tokens(file, [*known.values(), made])
    echo(f"token {made.token_id} for {name}, role {given}, until {utc(made.expires_ms):%Y-%m-%d %H:%M} UTC", err=True)
    sys.stdout.write(f"{text}\n")  # `echo` would mask it
    return 0


@token.command("list")
@shared_settings_options
def list_tokens(config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Show each token's id, role, end and name.

    No token can be shown again.
    """
    for row in read_tokens(_tokens_file(settings_of_clusters(config_file, assignments))).values():
        state = "until" if row.expires_ms > clocks.now_ms() else "expired"
        echo(f"{row.token_id}  {row.roles!s:8}  {state} {utc(row.expires_ms):%Y-%m-%d %H:%M}  {row.name}")
    return 0


@token.command()
@click.argument("token_id")
@shared_settings_options
def revoke(token_id: str, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Take the token TOKEN_ID away.

    Serve refuses it from the next request on.
    """
    with one_change(_tokens_file(settings_of_clusters(config_file, assignments)), TOKENS_FILE) as file:
        known = read_tokens(file)
        if known.pop(token_id, None) is None:
            raise UsageProblem(f"token {token_id!r}: is unknown; `rebalancer token list` shows ids")
        write_tokens(file, known.values())
    echo(f"token {token_id} is revoked")
    return 0


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
    file, given = _users_file(clusters), _roles_from(roles, clusters)
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
    for row in read_users(_users_file(settings_of_clusters(config_file, assignments))).values():
        echo(f"{row.roles!s:8}  since {utc(row.changed_ms):%Y-%m-%d %H:%M}  {row.name}")
    return 0


@user.command()
@click.argument("name")
@shared_settings_options
def remove(name: str, config_file: Path | None, assignments: tuple[str, ...]) -> int:
    """Remove NAME; their sessions end at the next request."""
    with _changed(_users_file(settings_of_clusters(config_file, assignments))) as users:
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
    given = _roles_from(roles, clusters)
    with _changed(_users_file(clusters)) as users:
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
    file = _users_file(settings_of_clusters(config_file, assignments))
    made = _made(name, _who(_known(file), name).roles, _password(password_file))
    with _changed(file) as users:
        users[name] = replace(made, roles=_who(users, name).roles)
    echo(f"user {name} has another password")
    return 0


def _tokens_file(clusters: Mapping[str, Settings]) -> Path:
    return _accounts_file(clusters, "tokens_file", "tokens")


def _users_file(clusters: Mapping[str, Settings]) -> Path:
    return _accounts_file(clusters, "users_file", "users")


def _accounts_file(clusters: Mapping[str, Settings], setting: str, accounts: str) -> Path:
    """The file of this setting of serve, which the clusters share; raises UsageProblem if it is not set."""
    file: Path | None = getattr(next(iter(clusters.values())).serve, setting)
    if file is None:
        raise UsageProblem(f"serve.{setting}: is not set; name the file that is to hold the {accounts}")
    return file


def _roles_from(texts: Sequence[str], clusters: Iterable[str]) -> Roles:
    """Returns the roles of the option --role; `clusters` are the known ones. Raises UsageProblem."""
    try:
        roles = Roles.parsed(texts)
    except ValueError as error:
        raise UsageProblem(f"--role: {error}") from None
    known = list(clusters)
    for cluster in roles.by_cluster:
        if cluster not in known:
            raise UsageProblem(f"--role: {cluster!r} is no cluster of the settings; known are {', '.join(known)}")
    return roles


def _known(file: Path) -> dict[str, User]:
    return read_users(file) if file.exists() else {}


@contextmanager
def _changed(file: Path) -> Iterator[dict[str, User]]:
    with one_change(file, USERS_FILE):
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
