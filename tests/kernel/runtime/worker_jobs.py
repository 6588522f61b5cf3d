"""Jobs for the worker process: a module of their own, which the worker imports."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator

from blumfeld.spi.runtime import Files

Steps = Generator[float, float, int]


class Stubborn(Exception):  # noqa: N818 - what it is
    """Goes into a pickle and doesn't come out."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def add(files: Files, first: int, second: int) -> Steps:
    yield 0.0
    return first + second


def process_id(files: Files) -> Steps:
    yield 0.0
    return os.getpid()


def report(files: Files) -> Generator[float, float, dict[str, int]]:
    """What the process costs: high-water mark of resident memory in KiB, and how it was set up."""
    yield 0.0
    with open("/proc/self/status") as status:
        peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return {
        "peak_kib": peak_kib,
        "nice": os.nice(0),
        "isolated": sys.flags.isolated,
        "no_site": sys.flags.no_site,
    }


def missing_file(files: Files, path: str) -> Steps:
    yield 0.0
    files.open(path)
    return 0


def stubborn(files: Files) -> Steps:
    yield 0.0
    raise Stubborn(1, 2)


def prints(files: Files) -> Steps:
    print("not an outcome")
    yield 0.0
    return 1


def pauses(files: Files, seconds: float) -> Generator[float, float, float]:
    """The time that went by, by the clock that is sent."""
    began = yield 0.0
    now = yield seconds
    return now - began


def dies(files: Files) -> Steps:
    yield 0.0
    os._exit(3)


def writes_for_ever(files: Files, path: str) -> Steps:
    """Makes one file after the other until somebody ends it."""
    number = 0
    while True:
        files.open(f"{path}/{number}", create=True).close()
        number += 1
        yield 0.001


def computes_for_ever(files: Files, path: str) -> Steps:
    """Is busy without a step, after it has said so by a file."""
    files.open(path, create=True).close()
    while True:
        time.sleep(0.001)
    yield 0.0
