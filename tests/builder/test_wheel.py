"""A wheel's file is read as a value."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

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


def test_a_version_may_be_spelled_in_two_ways(tmp_path: Path) -> None:
    assert read_wheel(str(write_wheel(tmp_path, "acme", "1.02"))).version == "1.2"


def test_a_wheel_with_a_password_is_none(tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "acme")
    data = bytearray(path.read_bytes())
    begin = data.rindex(b"PK\x01\x02", 0, data.rindex(b"acme/__init__.py"))
    data[begin + 8] |= 1  # the flag in the zip's directory
    path.write_bytes(data)
    with pytest.raises(NotAWheel, match="encrypted"):
        read_wheel(str(path))


def changed(path: Path, entry: str, data: str | None) -> None:
    """Write a wheel anew with other data in one file, or without it; its RECORD stays."""
    with ZipFile(path) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content.pop(entry, None)
    if data is not None:
        content[entry] = data.encode()
    with ZipFile(path, "w") as file:
        for name, kept in content.items():
            file.writestr(name, kept)


@pytest.mark.parametrize(
    ("entry", "data", "said"),
    [
        ("acme/__init__.py", "import evil", r"acme/__init__\.py has another hash than .*RECORD says"),
        ("acme/more.py", "", r"RECORD has no hash of acme/more\.py"),
        ("acme/__init__.py", None, r"RECORD names acme/__init__\.py, which isn't there"),
    ],
)
def test_a_wheel_that_is_not_what_its_record_says_is_none(
    tmp_path: Path, entry: str, data: str | None, said: str
) -> None:
    """The digest of a plug-in is made of RECORD: two builds with other code would be told equal."""
    path = write_wheel(tmp_path, "acme")
    changed(path, entry, data)
    with pytest.raises(NotAWheel, match=said):
        read_wheel(str(path))


def test_signatures_of_a_record_need_no_hash(tmp_path: Path) -> None:
    path = write_wheel(tmp_path, "acme")
    changed(path, f"{INFO}/RECORD.jws", "{}")
    assert read_wheel(str(path)).name == "acme"
