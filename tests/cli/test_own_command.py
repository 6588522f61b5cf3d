"""The processes that `blumfeld` starts of itself import what it imports, wherever it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blumfeld.cli.own_command import own_command


def test_a_working_directory_with_a_package_of_the_same_name_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "blumfeld").mkdir()
    (tmp_path / "blumfeld/__init__.py").write_text("raise SystemExit('the wrong one')")
    done = subprocess.run(
        [*own_command(), "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("blumfeld "), done.stderr


@pytest.mark.parametrize(("options", "leaks"), [([], True), (["-sE"], False)])
def test_a_process_that_takes_no_notice_of_pythonpath_starts_such_ones(
    options: list[str], leaks: bool, tmp_path: Path
) -> None:
    """An artefact is run with -sE. What lies on PYTHONPATH was imported by its nodes, and not by itself."""
    code = (
        "import json; from blumfeld.cli.own_command import own_command; print(json.dumps(own_command()[:-2]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, check=True, timeout=60
    )
    command = [*json.loads(told.stdout), "-c", "import sys; print(sys.path)"]
    path = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert (str(tmp_path) in path.stdout) is leaks
