"""A census of a broker's process: descriptors by kind, memory, tasks, connections, parked requests."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blumfeld.testing.process import BrokerProcess

POLL_S = 0.1
SCRAPE_TIMEOUT_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(blumfeld_[a-z_]+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Census:
    """One count."""

    fds: Counter[str]
    """Open descriptors by kind: ``socket``, ``pipe``, ``file``, ``[eventpoll]``…"""
    tasks: int
    connections: int
    parked: int
    rss_bytes: int

    def leaks(self, before: Census, files_may_stay: bool = False) -> list[str]:
        """Name everything that is more than it was, memory excepted, which needs more than two counts."""
        kinds = [kind for kind in sorted(self.fds) if kind != "file" or not files_may_stay]
        grown = [
            f"{self.fds[kind] - before.fds[kind]} {kind} descriptors"
            for kind in kinds
            if self.fds[kind] > before.fds[kind]
        ]
        return grown + [
            f"{more} {name}"
            for name in ("tasks", "connections", "parked")
            if (more := getattr(self, name) - getattr(before, name)) > 0
        ]


def take(broker: BrokerProcess, metrics_address: str) -> Census:
    """Count now."""
    fds = fds_by_kind(broker.pid)  # before the scrape, which is a socket itself
    values = scrape(metrics_address)
    return Census(
        fds,
        int(values["blumfeld_tasks"]),
        int(values.get("blumfeld_connections", 0)),
        int(values["blumfeld_parked_requests"]),
        broker.rss_bytes(),
    )


def take_settled(
    count: Callable[[], Census], before: Census, files_may_stay: bool, settle_s: float
) -> Census:
    """Count until nothing is more than it was, or until the time to settle is over."""
    deadline = time.monotonic() + settle_s
    while (now := count()).leaks(before, files_may_stay) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return now


def exposed(address: str) -> str:
    """The broker's metrics as it exposes them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SCRAPE_TIMEOUT_S) as answer:
        return str(answer.read(), "utf-8")


def scrape(address: str) -> dict[str, float]:
    """The broker's own metrics, by name, added up over their labels."""
    values: dict[str, float] = {}
    for name, value in _SAMPLE.findall(exposed(address)):
        values[name] = values.get(name, 0.0) + float(value)
    return values


def fds_by_kind(pid: int) -> Counter[str]:
    """Its open descriptors."""
    kinds: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            kinds[kind_of(os.readlink(link))] += 1
        except FileNotFoundError:
            continue  # closed since it was listed
    return kinds


def kind_of(target: str) -> str:
    """``socket:[123]`` is a socket, ``anon_inode:[eventpoll]`` an ``[eventpoll]``, a path a file."""
    if target.startswith("/"):
        return "file"
    head, _, tail = target.partition(":")
    return tail if head == "anon_inode" else head


def cpu_s(pid: int) -> float:
    """Processor time it has used so far, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
