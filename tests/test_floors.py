"""The floors hold: what import-linter checks in `make lint` is checked by the suite too."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_floor_imports_only_floors_below_it() -> None:
    """All contracts of [tool.importlinter] are kept; the output names the import that breaks one."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_record_and_the_map_name_the_floors_that_there_are() -> None:
    """ADR 0001 and docs/architecture.md, from the lowest floor up."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers"]
    record = (ROOT / "docs" / "adr" / "0001-shape-of-the-house.md").read_text()
    decision = record.partition("**Decision.**")[2].partition("A floor imports")[0]
    assert re.findall(r"`([a-z |:]+)`", decision) == layers[::-1]
    floor_lines = re.findall(
        r"^  ((?:[a-z]+/ )+) +(\d)", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M
    )
    floors = {name.rstrip("/"): int(floor) for names, floor in floor_lines for name in names.split()}
    expected = {
        name: number for number, floor in enumerate(layers[::-1], 1) for name in re.split(r" [|:] ", floor)
    }
    assert floors == expected
