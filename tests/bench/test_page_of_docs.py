"""docs/bench.md says what the command takes, and its example is a workload."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from blumfeld_bench.command import app
from blumfeld_bench.workload import parse_workload, shipped

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "bench.md").read_text()


def test_the_example_is_a_workload() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert len(parse_workload(example, "docs/bench.md").steps) == 2


def test_each_option_of_a_run_is_documented_and_no_other() -> None:
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    options = {
        name
        for option in run.params
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    }
    named = set(re.findall(r"`(--[a-z-]+)[^`]*`", TEXT)) | set(re.findall(r", `?(--[a-z-]+)", TEXT))
    of_variants = {"--label", "--start", "--running", "--nodes"}
    assert named - of_variants <= options
    assert options - named - {"--system-calls"} == set()


def test_each_shipped_workload_is_named() -> None:
    assert {name for name in shipped() if f"`{name}`" not in TEXT} == set()
