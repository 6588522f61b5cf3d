"""The Python command that Spark's processes run on this machine.

Spark puts its own ``pyspark.zip`` first on ``PYTHONPATH``. Python keeps no compiled code for a zip, so each process
compiles pyspark again, for 0.7 s of CPU: eight daemons at the first query, one process at each later one. A small
script takes the zip off the path. The processes then import the installed pyspark, which is compiled.
"""

from __future__ import annotations

import os
import shlex
import sys
import zlib
from importlib.util import find_spec

from blumfeld_sink_spark.spark.runtime.java import cache_folder

_SCRIPT = """#!/bin/sh
# Made by blumfeld archive: Python without Spark's zips, which each process would compile anew.
path=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) path=$path${path:+:}$each ;;
  esac
done
unset IFS
PYTHONPATH=$path exec %s "$@"
"""


def worker_python(*, local: bool) -> str:
    """Returns the command for Spark's processes: the script, or this Python where the script can't work.

    It can't where workers may run on other machines, where pyspark or py4j exist only in a zip, and where the cache
    folder can't be written.
    """
    if not local or os.name != "posix" or not all(_is_installed(name) for name in ("pyspark", "py4j")):
        return sys.executable
    text = _SCRIPT % shlex.quote(sys.executable)
    path = cache_folder() / "python" / f"python-{zlib.crc32(text.encode()):08x}"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(0o755)
            fresh.replace(path)
        return str(path) if os.access(path, os.X_OK) else sys.executable
    except OSError:
        return sys.executable


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and os.path.isfile(spec.origin or "")
