"""The option ``--command-config`` of the verbs that dial a broker."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from blumfeld.client.security.command_config import (
    HELP,
    METAVAR,
    OPTION,
    ClientSecurity,
    client_security,
    read_command_config,
)
from blumfeld.kernel.runtime.real_files import RealFiles

CommandConfig = Annotated[
    str | None,
    typer.Option(OPTION, metavar=METAVAR, help=HELP),
]


def security_of(path: str | None) -> ClientSecurity:
    """Returns what the file says; PLAINTEXT without one. A file with a secret that every user may read is warned of.

    :raises CommandConfigError: the file can't be used
    """
    return client_security(path, RealFiles(), _warn)


def librdkafka_login(path: str | None) -> dict[str, Any]:
    """Returns the same as settings of librdkafka.

    :raises CommandConfigError: the file can't be used
    """
    security_of(path)
    return {} if path is None else read_command_config(path, RealFiles()).librdkafka(RealFiles())


def _warn(line: str) -> None:
    typer.echo(f"blumfeld: {line}", err=True)
