"""Artefacts of ``blumfeld build``, from the wheels that ``make wheels`` puts into dist/. No network is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from blumfeld_builder.artefact.pyz import FILE

WHEELS = Path(__file__).resolve().parents[1] / "dist"
BUILD_TIMEOUT_S = 1800.0


class NotBuiltError(Exception):
    """There is no build of a manifest; the message is the builder's."""


def absent() -> str | None:
    """Return what must be done before a build; ``None`` if the wheels are there."""
    return None if any(WHEELS.glob("blumfeld-*.whl")) else f"no wheels in {WHEELS}: make wheels"


def build(manifest: Path, out: Path) -> Path:
    """Build a manifest into the folder ``out``. Return the artefact's path.

    :raises NotBuiltError: it can't be, or takes longer than ``BUILD_TIMEOUT_S``
    """
    command = [sys.executable, "-m", "blumfeld.cli.main", "build", str(manifest), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotBuiltError(f"{manifest}: no end of the build in {error.timeout:.0f} s") from None
    if done.returncode:
        raise NotBuiltError(done.stderr.strip())
    return out / FILE
