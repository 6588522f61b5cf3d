"""What a process of Spark's does without."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa


class _NoPandas:
    """A finder of modules to which pandas isn't installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """:raises ImportError: pandas is asked for"""
        if name == "pandas":
            raise ImportError("pandas is left out", name=name)


def leave_pandas_out() -> None:
    """Lets pyarrow find no pandas the first time it looks, at the first array of a list: importing it would take 0.4 s
    of CPU in each of the workers, which never use it. Whoever does want pandas later gets it, from pyarrow too.
    """
    if "pandas" in sys.modules:
        return
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)
