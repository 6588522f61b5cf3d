"""Count the instructions of one encode or decode by callgrind: (I(2N) - I(N)) / N, which other processes don't affect.

``python -m campaigns.bench.codec.instructions`` is the counted process. It reads lines ``NAME TAB DIRECTION TAB TIMES
TAB CASE``, and answers each one after that many calls. Counting is off until all modules are imported.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from campaigns import ROOT
from campaigns.bench.codec.messages import cases
from campaigns.bench.codec.rivals import Contestant, contestants
from campaigns.bench.counting.programs import CALLGRIND_LATER, Counted

Count = Callable[[str, str, str, int], float]
"""Function of codec, case, direction and N that returns the instructions of one call."""
STOP_TIMEOUT_S = 60.0
WARM_UP_CALLS = 200
"""Calls before counting: the interpreter specialises bytecode in the first few dozen."""


def serve() -> None:
    """Execute each line of standard input until it ends."""
    chosen = {case.name: case for case in cases()}

    @cache
    def held(case: str) -> dict[str, Contestant]:
        ours, rivals, _ = contestants(chosen[case])
        return {one.name: one for one in (ours, *rivals)}

    gc.disable()
    for line in sys.stdin:
        name, direction, times, case = line.rstrip("\n").split("\t")
        call = getattr(held(case)[name], direction)
        for _ in range(int(times)):
            call()
        print("done", flush=True)


@contextmanager
def counting() -> Iterator[Count]:
    """Yield a function that counts, in one process that lives as long as the block.

    :raises FileNotFoundError: valgrind is not installed
    """
    command = [*CALLGRIND_LATER, sys.executable, "-m", "campaigns.bench.codec.instructions"]
    with tempfile.TemporaryDirectory(prefix="blumfeld-codec-") as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            running = Counted(process.pid, Path(folder))
            _ask(process, "blumfeld", cases()[0].name, "encode", 1)
            running.switch_on()
            yield partial(_count, running, partial(_ask, process))
        finally:
            process.communicate(timeout=STOP_TIMEOUT_S)


def _count(
    running: Counted,
    ask: Callable[[str, str, str, int], None],
    name: str,
    case: str,
    direction: str,
    times: int,
) -> float:
    ask(name, case, direction, min(times, WARM_UP_CALLS))
    once, twice = (
        running.instructions(partial(ask, name, case, direction, count)) for count in (times, 2 * times)
    )
    return (twice - once) / times


def _ask(process: subprocess.Popen[bytes], name: str, case: str, direction: str, times: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}\t{direction}\t{times}\t{case}\n".encode())
    process.stdin.flush()
    if process.stdout.readline() != b"done\n":
        raise RuntimeError(f"{name} could not {direction} {case} under callgrind")


if __name__ == "__main__":
    serve()
