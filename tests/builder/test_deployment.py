"""The systemd unit of a build."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld_builder.artefact.deployment import unit_text

ARTEFACT = "/opt/blumfeld/broker.pyz"


def unit_of(manifest: str) -> dict[str, str]:
    """The unit's settings."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit_text(read_manifest(manifest, "broker.toml")), flags=re.M))


def test_several_nodes_have_time_to_stop_one_after_the_other_and_get_one_sigterm_each() -> None:
    """systemd's own default signals every process of a unit. The supervisor's SIGTERM would be a node's second one,
    which ends it at once."""
    unit = unit_of("nodes = 3")
    assert (unit["KillMode"], unit["TimeoutStopSec"]) == ("mixed", "120")
    assert unit_of("")["TimeoutStopSec"] == "60"


def test_log_directories_elsewhere_may_be_written() -> None:
    """ProtectSystem=strict makes every other folder read-only."""
    assert unit_of("")["ReadWritePaths"] == ""
    assert unit_of('node.data_dir = "/var/lib/blumfeld/data"')["ReadWritePaths"] == ""
    unit = unit_of('node.data_dirs = ["/disk 1/50%", "disk-2", "../elsewhere"]')
    assert unit["ReadWritePaths"] == '"/disk 1/50%%" "/var/lib/elsewhere"'


@pytest.mark.parametrize("manifest", ["", 'nodes = 3\nnode.data_dir = "/disk 1/50%"'])
def test_systemd_takes_the_unit_without_a_complaint(manifest: str, tmp_path: Path) -> None:
    """Only the artefact's place is another one: the file must be there."""
    verify = shutil.which("systemd-analyze") or pytest.skip("no systemd-analyze")
    there = shutil.which("true")
    unit = tmp_path / "blumfeld.service"
    unit.write_text(unit_text(read_manifest(manifest, "broker.toml")).replace(ARTEFACT, str(there)))
    done = subprocess.run(
        [verify, "--man=no", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
