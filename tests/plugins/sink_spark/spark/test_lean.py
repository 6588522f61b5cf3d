"""Spark's processes do without pandas; in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")

CODE = """
import sys
import pyarrow as pa
from blumfeld_sink_spark.spark.runtime.lean import leave_pandas_out

leave_pandas_out()
assert pa.array([None, b"x"]).to_pylist() == [None, b"x"]
import blumfeld_sink_spark.spark.tasks.task
assert "pandas" not in sys.modules, "pyarrow imported it after all"
import pandas
assert pa.table({"a": [1, 2]}).to_pandas()["a"].tolist() == [1, 2]
assert pa.array(pandas.Series([1, 2])).to_pylist() == [1, 2]
leave_pandas_out()
assert sys.modules["pandas"] is pandas
"""


def test_pandas_is_imported_by_nobody_until_it_is_wanted() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
