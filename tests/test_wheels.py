"""What ships apart is whole apart: the wheels of the four distributions, in a fresh environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = ROOT / "plugins" / "sink_spark"
LABORATORY = {"bench": "blumfeld-bench", "new": "blumfeld-kit", "simulate": "blumfeld-kit"}
"""Verb → the distribution that brings it."""
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def ran(*command: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """A process that ended with this status."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def held(wheel: Path) -> tuple[set[str], dict[str, bytes]]:
    """Top-level names of a wheel, and the files of its dist-info."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        info = {name.partition("/")[2]: file.read(name) for name in names if ".dist-info/" in name}
    return {name.partition("/")[0] for name in names if ".dist-info/" not in name}, info


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_the_archive_is_a_distribution_of_its_own(tmp_path: Path) -> None:
    """No file of it is in the broker's wheel; without it ``blumfeld archive`` says what to install."""
    ran(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), str(ARCHIVE))
    [core] = tmp_path.glob("blumfeld-*.whl")
    [archive] = tmp_path.glob("blumfeld_archive-*.whl")

    packages, info = held(core)
    assert "blumfeld" in packages
    assert not any("sink" in name for name in packages)
    assert b"sink_spark" not in info["entry_points.txt"]
    needed = message_from_bytes(info["METADATA"]).get_all("Requires-Dist", [])
    assert not any("spark" in requirement or "duckdb" in requirement for requirement in needed), needed

    packages, info = held(archive)
    assert packages == {"blumfeld_sink_spark"}
    assert info["entry_points.txt"].decode().split("\n")[:2] == [
        "[blumfeld.plugins]",
        "sink_spark = blumfeld_sink_spark:Plugin",
    ]
    assert info["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    needed = message_from_bytes(info["METADATA"]).get_all("Requires-Dist", [])
    assert any(requirement.startswith("blumfeld<") for requirement in needed), needed
    assert any(requirement.startswith("pyspark>") for requirement in needed), needed

    ran(sys.executable, "-m", "venv", str(tmp_path / "fresh"))
    python, blumfeld = (str(tmp_path / "fresh" / "bin" / name) for name in ("python", "blumfeld"))
    ran(python, *PIP, "install", str(core))
    run_result = ran(blumfeld, "archive", "status", status=1)
    line = (
        "archive comes with the package blumfeld-archive, which isn't installed: pip install blumfeld-archive"
    )
    assert (run_result.stdout, run_result.stderr) == ("", f"blumfeld: {line}\n")

    ran(python, *PIP, "install", "--no-deps", str(archive))  # to be found, it needs none of them
    assert " backfill " in ran(blumfeld, "archive", "--help").stdout
    listed = ran(blumfeld, "plugins").stdout
    assert any(line.split()[:3] == ["sink_spark", "sink", "blumfeld-archive"] for line in listed.splitlines())
    lacking = ran(blumfeld, "archive", "sql", "SELECT 1", status=1)
    assert lacking.stderr == "blumfeld archive: pyarrow is not installed: pip install blumfeld-archive\n"


@pytest.mark.wheel
@pytest.mark.timeout(600)
def test_the_laboratory_is_two_distributions_of_its_own(tmp_path: Path) -> None:
    """No file of it is in the broker's wheel; without it its verbs say what to install, and pytest has the fixture."""
    sources = [str(ROOT), str(ROOT / "kit"), str(ROOT / "bench")]
    ran(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), *sources)
    [core] = tmp_path.glob("blumfeld-*.whl")
    packages, info = held(core)
    assert packages.isdisjoint({"blumfeld_kit", "blumfeld_bench"})
    needed = message_from_bytes(info["METADATA"]).get_all("Requires-Dist", [])
    assert not any(
        requirement.startswith(("pytest", "hypothesis", "matplotlib", "numpy")) for requirement in needed
    ), needed

    ran(sys.executable, "-m", "venv", str(tmp_path / "fresh"))
    python, blumfeld = (str(tmp_path / "fresh" / "bin" / name) for name in ("python", "blumfeld"))
    ran(python, *PIP, "install", str(core), "pytest")
    for verb, package in LABORATORY.items():
        error_text = ran(blumfeld, verb, "--help", status=1).stderr
        assert (
            error_text
            == f"blumfeld: {verb} comes with the package {package}, which isn't installed: pip install {package}\n"
        )
    (tmp_path / "test_broker.py").write_text("def test_broker(blumfeld): assert blumfeld.port\n")
    assert "1 passed" in ran(python, "-m", "pytest", "-q", str(tmp_path / "test_broker.py")).stdout

    ran(python, *PIP, "install", *(str(wheel) for wheel in tmp_path.glob("blumfeld_*.whl")))
    assert "seed" in ran(blumfeld, "simulate", "--seeds", "3", "--seconds", "5").stdout
    ran(blumfeld, "new", "plugin", "storage", "acme_x", "--out", str(tmp_path))
    assert (tmp_path / "acme_x" / "tests" / "test_acme_x.py").exists()
    assert " rebalance " in ran(blumfeld, "bench", "--help").stdout
