"""``blumfeld archive`` in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from blumfeld_sink_spark.commands import app


def run(verb: str, root: object, *words: str) -> Result:
    """Runs a command on an archive."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [verb, "--root", str(root), *words])


def said(verb: str, root: object, *words: str) -> str:
    """Returns what a command printed; asserts that it succeeded."""
    done = run(verb, root, *words)
    assert done.exit_code == 0, (verb, words, done.output)
    return done.stdout


def rows_said(verb: str, root: object, *words: str) -> list[dict[str, Any]]:
    """Returns the rows that a command printed as JSON; asserts that it succeeded."""
    return [json.loads(line) for line in said(verb, root, *words, "--json").splitlines()]


def refused(verb: str, root: object, *words: str) -> tuple[int, str]:
    """Returns the exit status and the error of a command; asserts that it failed without a traceback."""
    done = run(verb, root, *words)
    assert done.exit_code, done.output
    assert "Traceback" not in done.output
    return done.exit_code, done.stderr
