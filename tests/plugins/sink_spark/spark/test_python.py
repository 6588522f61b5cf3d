"""The Python of Spark's processes: it imports pyspark from its installation, not from Spark's zip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from blumfeld_sink_spark.spark.runtime import python
from blumfeld_sink_spark.spark.runtime.python import worker_python

ASKED = "import os, sys; print(os.environ['PYTHONPATH'], sys.prefix, *sys.argv[1:])"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))


def test_sparks_zips_are_taken_off_the_path_and_nothing_else() -> None:
    given = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip", "/a folder", "/x.jar"]
    result = subprocess.run(
        [worker_python(local=True), "-c", ASKED, "an argument", "*"],
        env={**os.environ, "PYTHONPATH": ":".join([*given, given[0]])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == f"/a folder:/x.jar {sys.prefix} an argument *"


def test_the_script_is_made_once() -> None:
    path = Path(worker_python(local=True))
    before = path.stat().st_mtime_ns
    assert worker_python(local=True) == str(path)
    assert path.stat().st_mtime_ns == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_this_python_is_taken_where_the_script_wouldnt_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases: executors on other machines, a cache folder that can't be made, and pyspark only in Spark's zip."""
    assert worker_python(local=False) == sys.executable
    (tmp_path / "a cache").write_text("no folder")
    assert worker_python(local=True) == sys.executable
    monkeypatch.setattr(python, "find_spec", lambda name: None)
    assert worker_python(local=True) == sys.executable
