"""A directory is opened only by the storage that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.build_needs import BuildLacks
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.kernel.storage_mark import MARK, check_marks, write_marks

FILES = RealFiles()


def test_a_directory_is_its_storages(tmp_path: Path) -> None:
    write_marks(FILES, [str(tmp_path)], "storage_acme")
    assert (tmp_path / MARK).read_text() == "storage_acme\n"
    check_marks(FILES, [str(tmp_path)], "storage_acme")
    with pytest.raises(
        BuildLacks, match="logs of the storage storage_acme, and this build has storage_local"
    ):
        check_marks(FILES, [str(tmp_path)], "storage_local")


def test_a_mark_is_written_once(tmp_path: Path) -> None:
    write_marks(FILES, [str(tmp_path)], "storage_acme")
    before = (tmp_path / MARK).stat().st_mtime_ns
    write_marks(FILES, [str(tmp_path)], "storage_acme")
    assert (tmp_path / MARK).stat().st_mtime_ns == before


def test_a_directory_without_a_mark_that_has_kafkas_files_is_storage_locals(tmp_path: Path) -> None:
    (tmp_path / "ticks-0").mkdir()
    check_marks(FILES, [str(tmp_path)], "storage_acme")
    (tmp_path / "ticks-0" / f"{0:020d}.log").write_bytes(b"")
    check_marks(FILES, [str(tmp_path)], "storage_local")
    with pytest.raises(BuildLacks, match=f"^{tmp_path} holds logs of the storage storage_local"):
        check_marks(FILES, [str(tmp_path / "new"), str(tmp_path)], "storage_acme")


def test_a_new_directory_is_anybodys(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / "notes-1").write_text("a file")
    check_marks(FILES, [str(tmp_path), str(tmp_path / "absent")], "storage_acme")
