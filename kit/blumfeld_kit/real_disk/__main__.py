"""``python -m blumfeld_kit.real_disk FILE MODULE CLASS DIRECTORY CAMPAIGN``. The storage kit runs this, not a
person.

It prints ``broken …`` for each promise that was not kept, and ``tried`` with the number of deaths and of refused
writes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from blumfeld_kit.real_disk.campaigns import CAMPAIGNS


def load(file: str, module: str, qualname: str) -> Any:
    """Import the kit's class by its module's name, or else from its file."""
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        target = sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(target)
    for name in qualname.split("."):
        target = getattr(target, name)
    return target


def main() -> None:
    """Run one campaign in one directory."""
    file, module, qualname, directory, campaign = sys.argv[1:]
    kit = load(file, module, qualname)()
    reports = CAMPAIGNS[campaign](kit.make_storage_in, directory)
    print("tried", reports.deaths, reports.refusals, flush=True)


if __name__ == "__main__":
    main()
