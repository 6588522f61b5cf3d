"""Folders of sources in ``build.wheels``: what the wheel holds follows from the sources as they are now."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from blumfeld.kernel.manifest.sections import BuildSection
from blumfeld.plugging.errors import Faults
from blumfeld_builder.wheels.supply import find_supply

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme"
version = "1"

[tool.setuptools]
packages = ["acme"]
"""


def modules(folder: Path, work: Path) -> list[str]:
    """The modules of the wheel that is built from a folder."""
    work.mkdir()
    faults = Faults("broker.toml")
    supply = find_supply(BuildSection(wheels=(str(folder),)), str(folder.parent), str(work), faults)
    faults.tell()
    [built] = [path for place in supply.folders for path in Path(place).glob("*.whl")]
    with ZipFile(built) as wheel:
        return sorted(name for name in wheel.namelist() if name.endswith(".py"))


def test_setuptools_writes_nothing_to_the_sources_and_takes_no_module_that_is_gone(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    folder = tmp_path / "sources"
    (folder / "acme").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "acme/__init__.py").write_text("")
    (folder / "acme/gone.py").write_text("")
    assert modules(folder, tmp_path / "first") == ["acme/__init__.py", "acme/gone.py"]
    assert sorted(path.name for path in folder.iterdir()) == ["acme", "pyproject.toml"]

    stale = folder / "build/lib/acme"  # as a build by hand leaves it
    stale.mkdir(parents=True)
    (folder / "acme/gone.py").rename(stale / "gone.py")
    assert modules(folder, tmp_path / "second") == ["acme/__init__.py"]
