"""Keeps pandas out of Spark's workers."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa


class _NoPandas:
    """A module finder that hides pandas."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Leaves every other module to the finders behind it.

        :raises ImportError: the module is pandas
        """
        if name == "pandas":
            raise ImportError("pandas is left out", name=name)


def leave_pandas_out() -> None:
    """Makes pyarrow's first look for pandas fail. It looks once, at the first array made of a list.

    Importing pandas costs each worker 0.4 s of CPU, and no worker uses it. A later ``import pandas`` works.
    """
    if "pandas" in sys.modules:
        return
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)
