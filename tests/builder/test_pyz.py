"""The artefact's file is asked on any disk."""

from __future__ import annotations

from pathlib import Path

from blumfeld_builder.artefact import pyz
from blumfeld_builder.target import HERE, Target, find_target


def test_a_file_that_may_not_be_executed_answers(tmp_path: Path) -> None:
    """As on a disk that is mounted with noexec: the folder of a build may lie there."""
    path = tmp_path / pyz.FILE
    path.write_text("#!/bin/sh\necho $1 of $0\n")
    path.chmod(0o644)
    target = find_target(HERE)
    assert isinstance(target, Target)
    told = pyz.ask(str(path), "plan", source="broker.toml", work=str(tmp_path), target=target)
    assert told == f"plan of {path}\n"
