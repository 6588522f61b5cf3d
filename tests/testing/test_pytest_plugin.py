"""The pytest plug-in: what an author of a plug-in reads when a contract kit's test fails."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from blumfeld.testing import pytest_plugin

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
from blumfeld.spi.assignors import AssignorError
from blumfeld.testing import AssignorContract


class Unnamed:
    name = "two words"

    def assign(self, spec):
        raise AssignorError("not now")


class TestUnnamed(AssignorContract):
    def make_assignor(self):
        return Unnamed()

    def test_of_its_own(self):
        assert False
"""


def test_a_failure_says_what_the_contract_demands_and_where_to_read_more(tmp_path: Path) -> None:
    """Only for tests of the kit: a test that the author wrote has no such section."""
    (tmp_path / "test_unnamed.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "has_a_name or of_its_own",
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 failed" in ran.stdout, ran.stdout + ran.stderr
    assert "The contract demands: The name has no comma and no space" in ran.stdout
    assert "Read more: blumfeld.spi.assignors, docs/write-an-assignor.md" in ran.stdout
    assert ran.stdout.count("The contract demands") == 1
    assert "'two words' ==" in ran.stdout  # the kit's asserts are rewritten and show values


CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def blumfeld_options():
    return {"config": {"num.partitions": 5}}
"""
SHARED_SUITE = """
import pytest

pytestmark = pytest.mark.blumfeld(config={"num.partitions": 2})
seen = set()


@pytest.mark.parametrize("nth", [0, 1])
def test_a_module_and_a_run_have_one_broker(blumfeld_module, blumfeld_session, blumfeld, nth):
    seen.add((blumfeld_module.bootstrap_servers, blumfeld_session.bootstrap_servers))
    assert len(seen) == 1
    assert blumfeld_module is not blumfeld is not blumfeld_session
    brokers = (blumfeld, blumfeld_module, blumfeld_session)
    assert [broker.node.plan.config.int("num.partitions") for broker in brokers] == [2, 2, 5]
"""


def test_a_broker_may_be_shared_by_a_module_or_by_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shared.py").write_text(SHARED_SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


STORAGE_SUITE = """
from blumfeld.testing import StorageContract
from blumfeld.testing.storage_memory import MemoryStorage


class TestMine(StorageContract):
    simulated_disk = {simulated}

    def make_storage(self, runtime):
        return MemoryStorage(runtime)
"""


@pytest.mark.parametrize("simulated", [True, False])
def test_the_end_of_a_storage_kits_run_names_its_second_half(tmp_path: Path, simulated: bool) -> None:
    """A storage that can't be simulated is told so in the list of what was not tried."""
    (tmp_path / "test_mine.py").write_text(STORAGE_SUITE.format(simulated=simulated))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "contiguous or full_disk",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ("TestMine: the kit drives a storage alone" in ran.stdout) == simulated, ran.stdout + ran.stderr
    assert ("blumfeld simulate --storage NAME --seeds 0-19" in ran.stdout) == simulated
    assert ("faults of the disk at any operation, blumfeld simulate" in ran.stdout) == (not simulated)


def test_each_place_to_read_more_is_there() -> None:
    """Each kit is a module, and names a module of the SPI and a page."""
    for kit, page in pytest_plugin._CONTRACTS.items():
        spi, docs = page.split(", ")
        assert import_module(kit)
        assert import_module(spi)
        assert (ROOT / docs).is_file()
