"""``blumfeld security``: verbs of this plug-in."""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import Annotated

import typer

app = typer.Typer(
    name="security",
    help="Passwords of users.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def security() -> None:
    """Passwords of users."""


@app.command("hash-password")
def hash_password_command(
    user: Annotated[
        str | None, typer.Option(help="Print a whole line for the file of `plain_users`.", show_default=False)
    ] = None,
) -> None:
    """Print the hash of a password, for a file of PLAIN's users.

    The password comes from the terminal, or is the first line of the standard input; never an argument, which every
    user of the machine can read.
    """
    from blumfeld_security.exchanges.passwords import SALT_BYTES, hash_password

    password = _password()
    if not password or "\0" in password:
        typer.echo("blumfeld: the password is empty, or has a NUL", err=True)
        raise typer.Exit(1)
    hashed = hash_password(password, secrets.token_bytes(SALT_BYTES))
    typer.echo(str(hashed) if user is None else f"{_toml_key(user)} = '{hashed}'")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        typer.echo("blumfeld: the two passwords differ", err=True)
        raise typer.Exit(1)
    return first


def _toml_key(name: str) -> str:
    """Returns a name as a quoted key of TOML."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
