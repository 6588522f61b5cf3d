"""The builder's tests need what it brings: pip, pex and its libraries."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("blumfeld_builder") is None or find_spec("pex") is None:
    collect_ignore_glob = ["test_*.py"]  # `make setup` installs it
