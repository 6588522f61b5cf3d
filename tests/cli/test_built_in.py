"""An artefact of ``blumfeld build`` takes its own manifest where no file is given, and tells what it was built from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOCK = """lock-version = "1.0"
created-by = "a test"

[[packages]]
name = "blumfeld"
version = "0.1.0"
wheels = [{ name = "b.whl", path = "wheels/b.whl", hashes = { sha256 = "abc" } }]
"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder with a package as the builder adds it."""
    package = tmp_path / "artefact" / "blumfeld_build"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "manifest.toml").write_text('[node]\nid = 7\ndata_dir = "ticks"\n')
    (package / "pylock.toml").write_text(LOCK)
    return package


def blumfeld(built: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blumfeld.cli.main", *arguments],
        cwd=built.parent,
        env={**os.environ, "PYTHONPATH": str(built.parent)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_a_plan_without_a_file_is_of_the_built_in_manifest(built: Path) -> None:
    assert "node 7" in blumfeld(built, "plan").stdout
    assert "node 8" in blumfeld(built, "plan", "--set", "node.id=8").stdout


def test_a_file_goes_before_the_built_in_manifest(built: Path) -> None:
    (built.parent / "mine.toml").write_text("[node]\nid = 9\n")
    assert "node 9" in blumfeld(built, "plan", "mine.toml").stdout


def test_format_and_log_without_a_path_take_the_built_in_data_directory(built: Path) -> None:
    assert "formatted ticks: " in blumfeld(built, "format").stdout
    done = blumfeld(built, "log")
    assert str(built.parent / "ticks") in done.stdout, done.stderr


def test_a_problem_of_the_built_in_manifest_names_it(built: Path) -> None:
    done = blumfeld(built, "run", "--set", "node.id=x")
    assert done.stderr == 'blumfeld: built-in manifest: node.id: found "x"; allowed: an integer\n'
    (built / "manifest.toml").unlink()
    assert blumfeld(built, "run").stderr == "blumfeld: built-in manifest: no such file\n"


def test_build_tells_the_wheels_and_the_manifest(built: Path) -> None:
    shown = blumfeld(built, "build", "--show").stdout
    assert "  blumfeld 0.1.0  sha256:abc\n" in shown
    assert shown.endswith((built / "manifest.toml").read_text())
    assert blumfeld(built, "build", "--manifest").stdout == (built / "manifest.toml").read_text()
    assert blumfeld(built, "build", "--lock").stdout == LOCK
    done = blumfeld(built, "build", "broker.toml")
    assert done.returncode == 2


def test_without_a_build_there_is_no_data_directory_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = blumfeld(tmp_path / "none" / "blumfeld_build", "log")
    assert done.returncode == 2
    assert "only an artefact of" in done.stderr
