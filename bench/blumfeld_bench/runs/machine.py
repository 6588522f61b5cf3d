"""Describe the machine that a run takes place on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from blumfeld_bench.result import Machine


def this_machine() -> Machine:
    """Return a description of this machine, with its present load."""
    cpuinfo = _read("/proc/cpuinfo")
    return Machine(
        cpu=_field(cpuinfo, "model name") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        virtual="hypervisor" in _field(cpuinfo, "flags").split(),
        load_before=round(os.getloadavg()[0], 2),
    )


def _field(cpuinfo: str, name: str) -> str:
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
