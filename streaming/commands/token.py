"""`rebalancer token create|list|revoke`: who may ask serve, by the file `serve.tokens_file`."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from streaming.commands.console import echo
from streaming.commands.options import (
    accounts_file,
    role_option,
    roles_from,
    settings_of_clusters,
    shared_settings_options,
)
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.accounts import NAME_LENGTH_MAX, new_token, one_change, read_tokens, write_tokens
from streaming.runtime.accounts import TOKENS_FILE as WHAT
from streaming.settings import Settings
from streaming.tables import utc

DAY_MS = 86_400_000


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
    given = roles_from(roles, clusters)
    text, made = new_token(name, given, now_ms=now_ms, expires_ms=now_ms + days * DAY_MS)
    with one_change(_file(clusters), WHAT) as file:
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
    for row in read_tokens(_file(settings_of_clusters(config_file, assignments))).values():
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
    with one_change(_file(settings_of_clusters(config_file, assignments)), WHAT) as file:
        known = read_tokens(file)
        if known.pop(token_id, None) is None:
            raise UsageProblem(f"token {token_id!r}: is unknown; `rebalancer token list` shows ids")
        write_tokens(file, known.values())
    echo(f"token {token_id} is revoked")
    return 0


def _file(clusters: Mapping[str, Settings]) -> Path:
    return accounts_file(clusters, "tokens_file", "tokens")
