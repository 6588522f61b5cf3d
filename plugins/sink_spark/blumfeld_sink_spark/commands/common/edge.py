"""The edge of every command: an error becomes one line and an exit status."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from blumfeld_sink_spark.errors import ArchiveError, SettingsError

P = ParamSpec("P")
R = TypeVar("R")

FAILED, BAD_SETTINGS, INTERRUPTED = 1, 2, 130
"""Exit statuses beside 0."""

EXTRA = frozenset(
    {
        "confluent_kafka",
        "deltalake",
        "duckdb",
        "fastavro",
        "google",
        "matplotlib",
        "numpy",
        "obstore",
        "pandas",
        "polars",
        "pyarrow",
        "pyiceberg",
        "pyspark",
    }
)
"""Top-level modules of the distribution's dependencies. Any other missing module is a bug and keeps its traceback."""


def edge(command: Callable[P, R]) -> Callable[P, R]:
    """Wraps a command: its errors become a line on stderr instead of a traceback. An error of several lines has its
    first one marked, and the others below it.

    The exit status is 1 for :class:`ArchiveError` and for a dependency that isn't installed, 2 for
    :class:`SettingsError`, and 130 for Ctrl-C after the command's own clean-up.
    """

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except SettingsError as error:
            raise _told(str(error), BAD_SETTINGS) from error
        except ArchiveError as error:
            raise _told(str(error), FAILED) from error
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRA:
                raise
            raise _told(f"{missing} is not installed: pip install blumfeld-archive", FAILED) from error
        except KeyboardInterrupt as error:
            raise _told("interrupted", INTERRUPTED) from error

    return guarded


def _told(message: str, status: int) -> typer.Exit:
    first, *others = message.splitlines() or [""]
    typer.echo(f"blumfeld archive: {first}", err=True)
    for line in others:  # a manifest may have several problems
        typer.echo(f"  {line}", err=True)
    return typer.Exit(status)
