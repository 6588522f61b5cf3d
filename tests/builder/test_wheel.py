"""A wheel's file is read as a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_builder.wheels.wheel import NotAWheel, read_wheel
from tests.builder.fakes import write_wheel

INFO = "acme-0.1.0.dist-info"


def test_metadata_that_is_not_ascii_is_text(tmp_path: Path) -> None:
    """The bill of materials looks into it: a wheel with such a licence ended the archive's build."""
    path = write_wheel(tmp_path, "acme", python=">=3.11\nLicense: ©\nSummary: für alle")
    metadata = read_wheel(str(path), None).metadata
    assert (metadata["License"], metadata["Summary"]) == ("©", "für alle")


@pytest.mark.parametrize(
    "entry", ["../outside.py", "/outside.py", "acme-0.1.0.data/purelib/../../outside.py"]
)
def test_a_wheel_whose_file_leads_out_of_its_folder_is_none(tmp_path: Path, entry: str) -> None:
    path = write_wheel(tmp_path, "acme", files={entry: ""})
    with pytest.raises(NotAWheel, match="leads out of the folder"):
        read_wheel(str(path))


@pytest.mark.parametrize("points", ["no section", "[a]\nx=y\n[a]\n", "[a]\nx=y\nx=z\n"])
def test_a_wheel_whose_entry_points_cannot_be_read_is_none(tmp_path: Path, points: str) -> None:
    path = write_wheel(tmp_path, "acme", files={f"{INFO}/entry_points.txt": points})
    with pytest.raises(NotAWheel, match=r"entry_points\.txt"):
        read_wheel(str(path))


def test_a_wheel_that_requires_a_python_of_no_version_is_none(tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "acme", python="some day")
    with pytest.raises(NotAWheel, match="some day"):
        read_wheel(str(path))
