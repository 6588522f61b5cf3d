"""The kit's pytest plug-in: what an author of a plug-in reads when a contract kit's test fails."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import blumfeld_kit
from blumfeld_kit import pytest_plugin

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
from blumfeld.spi.assignors import AssignorError
from blumfeld_kit import AssignorContract


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


def ran(folder: Path, *options: str) -> str:
    """Output of a run of pytest in the folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_a_failure_says_what_the_contract_demands_and_where_to_read_more(tmp_path: Path) -> None:
    """Only for tests of the kit: a test that the author wrote has no such section."""
    (tmp_path / "test_unnamed.py").write_text(SUITE)
    output = ran(tmp_path, "-k", "has_a_name or of_its_own")
    assert "2 failed" in output, output
    assert "The contract demands: The name has no comma and no space" in output
    assert "Read more: blumfeld.spi.assignors, docs/write-a-plugin.md" in output
    assert output.count("The contract demands") == 1
    assert "'two words' ==" in output  # the kit's asserts are rewritten and show values


def test_each_contract_of_the_kit_has_a_page_where_to_read_more() -> None:
    homes = {name: getattr(blumfeld_kit, name).__module__ for name in blumfeld_kit.__all__}
    known = tuple(f"{kit}." for kit in pytest_plugin._CONTRACTS)
    assert not [name for name, home in homes.items() if not f"{home}.".startswith(known)]


STORAGE_SUITE = """
from blumfeld_kit import StorageContract
from blumfeld_storage_memory import MemoryStorage


class TestMine(StorageContract):
    simulated_disk = {simulated}

    def make_storage(self, runtime):
        return MemoryStorage(runtime)
"""


@pytest.mark.parametrize("simulated", [True, False])
def test_the_end_of_a_storage_kits_run_names_its_second_half(tmp_path: Path, simulated: bool) -> None:
    """A storage that can't be simulated is told so in the list of what was not tried."""
    (tmp_path / "test_mine.py").write_text(STORAGE_SUITE.format(simulated=simulated))
    output = ran(tmp_path, "-k", "contiguous or full_disk")
    assert ("TestMine: the kit drives a storage alone" in output) == simulated, output
    assert ("blumfeld simulate --storage NAME --seeds 0-19" in output) == simulated
    assert ("faults of the disk at any operation, blumfeld simulate" in output) == (not simulated)


def test_each_place_to_read_more_is_there() -> None:
    """Each kit is a module, and names a module of the SPI and a page."""
    for kit, page in pytest_plugin._CONTRACTS.items():
        spi, docs = page.split(", ")
        assert import_module(kit)
        assert import_module(spi)
        assert (ROOT / docs).is_file()
