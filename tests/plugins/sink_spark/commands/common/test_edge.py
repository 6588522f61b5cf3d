"""Exit statuses and messages at the edge of the commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from blumfeld_sink_spark.commands.common.edge import edge
from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError, SettingsError


def _app(raised: BaseException | None) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @edge
    def command(root: Annotated[str, typer.Option(help="where")] = "here") -> None:
        if raised is not None:
            raise raised
        typer.echo(root)

    return app


@pytest.mark.parametrize(
    ("make", "status", "line"),
    [
        (lambda: ArchiveError("no such topic"), 1, "blumfeld archive: no such topic"),
        (lambda: LedgerConflictError("two writers"), 1, "blumfeld archive: two writers"),
        (lambda: SettingsError("archive.topics: none"), 2, "blumfeld archive: archive.topics: none"),
        (
            lambda: ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"),
            1,
            "blumfeld archive: pyspark is not installed: pip install blumfeld-archive",
        ),
        (KeyboardInterrupt, 130, "blumfeld archive: interrupted"),
    ],
)
def test_what_was_refused_is_one_line_and_a_status(
    make: Callable[[], BaseException], status: int, line: str
) -> None:
    result = CliRunner().invoke(_app(make()), [])
    assert (result.exit_code, result.stderr.strip(), result.stdout) == (status, line, "")


def test_an_error_of_several_lines_begins_once() -> None:
    result = CliRunner().invoke(_app(SettingsError("a.toml: archive.x: 1\na.toml: archive.y: 2")), [])
    assert result.stderr == "blumfeld archive: a.toml: archive.x: 1\n  a.toml: archive.y: 2\n"


def test_a_module_of_our_own_that_is_missing_is_a_fault() -> None:
    result = CliRunner().invoke(_app(ModuleNotFoundError("x", name="blumfeld_sink_spark.nowhere")), [])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_options_pass_through() -> None:
    result = CliRunner().invoke(_app(None), ["--root", "there"])
    assert (result.exit_code, result.stdout.strip()) == (0, "there")
