"""The floors hold: what import-linter checks in `make lint` is checked by the suite too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_floor_imports_only_floors_below_it() -> None:
    """All contracts of [tool.importlinter] are kept; the output names the import that breaks one."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
