"""A wheel's file is read as a value."""

from __future__ import annotations

from pathlib import Path

from blumfeld_builder.wheels.wheel import read_wheel
from tests.builder.fakes import write_wheel


def test_metadata_that_is_not_ascii_is_text(tmp_path: Path) -> None:
    """The bill of materials looks into it: a wheel with such a licence ended the archive's build."""
    path = write_wheel(tmp_path, "acme", python=">=3.11\nLicense: ©\nSummary: für alle")
    metadata = read_wheel(str(path), None).metadata
    assert (metadata["License"], metadata["Summary"]) == ("©", "für alle")
