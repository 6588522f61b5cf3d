"""Count bytecodes and calls by Python function for one request.

``python -m campaigns bytecodes [--load tail]``. Callgrind sees one function for all of Python. This campaign traces
the broker while it serves in lock-step, and counts the bytecodes of each function exactly. A bytecode is about 25
instructions of the interpreter; the C functions that it calls come on top (see
``campaigns.bench.counting.instructions``).
"""

from __future__ import annotations

import argparse
import json
import runpy
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from campaigns.bench.counting.counted import Server, start
from campaigns.bench.counting.instructions import LOADS, MakeLoad, this_build, whole_turns
from campaigns.bench.counting.lockstep import make_topic

WIDTH = 120


@attrs.frozen
class Share:
    """One function's part in a request."""

    function: str
    file: str
    calls: float
    bytecodes: float


class Tracer:
    """Counts bytecodes and calls by function between two signals, then writes them to a file."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._calls: Counter[CodeType] = Counter()
        self._bytecodes: Counter[CodeType] = Counter()

    def toggle(self, number: int, frame: FrameType | None) -> None:
        """Start or stop counting; a signal handler."""
        if sys.gettrace() is not None:
            sys.settrace(None)
            self._write()
            return
        sys.settrace(self._trace)
        while frame is not None:  # functions that run already, such as the loop
            frame.f_trace, frame.f_trace_opcodes = self._trace, True
            frame = frame.f_back

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self._bytecodes[frame.f_code] += 1
        elif event == "call":
            self._calls[frame.f_code] += 1
            frame.f_trace_opcodes = True
        return self._trace

    def _write(self) -> None:
        shares = [
            Share(code.co_qualname, code.co_filename, self._calls[code], count)
            for code, count in self._bytecodes.items()
        ]
        partial = self._out.with_suffix(".partial")
        partial.write_text(json.dumps([attrs.asdict(share) for share in shares]))
        partial.rename(self._out)


def main() -> None:
    """Parse arguments, count, print the table. In the traced process: run the broker."""
    if sys.argv[1:2] == ["--serve"]:
        _serve(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description="Bytecodes of one produce request by function.")
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="lay a value over the manifest"
    )
    parser.add_argument("--load", choices=LOADS, default="produce")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=320)
    options = parser.parse_args()
    requests = whole_turns(options.requests, options.connections)
    with tempfile.TemporaryDirectory(prefix="blumfeld-bytecodes-") as folder:
        shares = measure(LOADS[options.load], options.set, options.connections, requests, Path(folder))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(shares, options.connections))


def _serve(out: Path, arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGUSR1, Tracer(out).toggle)
    sys.argv = ["blumfeld", *arguments]
    runpy.run_module("blumfeld.cli.main", run_name="__main__", alter_sys=True)


def measure(
    make: MakeLoad, overrides: Sequence[str], connections: int, requests: int, folder: Path
) -> list[Share]:
    """Return each function's part in a request, the most bytecodes first."""
    ours = this_build(None, overrides)
    out = folder / "shares"
    run = ours.command[ours.command.index("run") :]
    command = [sys.executable, "-m", "campaigns.bench.counting.bytecodes", "--serve", str(out), *run]
    running = start(Server(ours.name, command, bare=False), folder / "run")
    try:
        make_topic(running.port)
        load = make(running.port, connections)
        load.run(whole_turns(128, connections))
        running.process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        load.run(requests)
        running.process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + 20
        while not out.exists() and time.monotonic() < end:
            time.sleep(0.05)
        load.close()
    finally:
        running.stop()
    found = [Share(**share) for share in json.loads(out.read_text())]
    shares = [
        attrs.evolve(share, calls=share.calls / requests, bytecodes=share.bytecodes / requests)
        for share in found
    ]
    return sorted(shares, key=lambda share: (-share.bytecodes, share.file, share.function))


def table(shares: Sequence[Share], connections: int) -> Table:
    """Return a table of all functions whose part doesn't round to nothing."""
    total = sum(share.bytecodes for share in shares)
    title = f"Bytecodes of one request at {connections} connections: {total:,.0f}"
    shown = Table(title=title, title_justify="left")
    for column in ("bytecodes", "calls", "function", "module"):
        shown.add_column(column, justify="right" if column in ("bytecodes", "calls") else "left")
    for share in shares:
        if share.bytecodes >= 0.5:
            module = "/".join(Path(share.file).parts[-2:])
            shown.add_row(f"{share.bytecodes:.1f}", f"{share.calls:.2f}", share.function, module)
    return shown


if __name__ == "__main__":
    main()
