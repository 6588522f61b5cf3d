"""Instructions of one produce request, step by step: ``python -m campaigns steps``.

Callgrind can't tell one Python function from another, but a C function can switch it on and off. So for each function
on the path the broker is started once with that function wrapped in a ``functools.partial``. Only instructions inside
the partial are counted: the function with all that it calls. A step is a function without the steps in it. (The
detour costs about 200 instructions a call, which count for the calling step only.)
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from rich.table import Table

from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.counting.instructions import difference, running_server, this_build, whole_turns
from campaigns.bench.counting.lockstep import Produce
from campaigns.bench.counting.programs import CALLGRIND_LATER, Program

ALL = "all"
READ = "blumfeld.net.readiness.streams:ReadableStream._readable"
CUT = "blumfeld.net.connections.accepted:AcceptedConnection.consume"
DISPATCH = "blumfeld.broker.serving.dispatch:Dispatcher.request"
SERVE = "blumfeld.broker.produce.straight:StraightProduce.serve"
HEADER = "blumfeld.wire.batches.record_batch:RecordBatch.__init__"
APPEND = "blumfeld.broker.replicas.partition:Partition.append"
CHECK = "blumfeld.broker.replicas.rules.append_rules:AppendRules.check"
PLACE = "blumfeld.broker.replicas.partition:Partition.place"
TURN_END = "blumfeld.kernel.runtime.asyncio_runtime:AsyncioRuntime._end_turn"
TELL = "blumfeld.broker.replicas.partition:Partition._write"
WRITE = "blumfeld_storage_local.segments.segment_writer:SegmentWriter.append_few"
ANSWER = "blumfeld.broker.produce.straight:OneWritten.appended"
ADVANCE = "blumfeld.broker.replicas.partition:Partition._advance"
SEND = "blumfeld.net.connections.accepted:AcceptedConnection.flush"


@attrs.frozen
class Step:
    """A function of the path, and the functions within it that are steps of their own."""

    name: str
    function: str
    less: tuple[str, ...] = ()


STEPS = (
    Step("loop: poll, callbacks", ALL, (READ, TURN_END)),
    Step("receive", READ, (CUT,)),
    Step("cut the frame, make its exchange", CUT, (DISPATCH,)),
    Step("request header, dispatch", DISPATCH, (SERVE,)),
    Step("produce: prefix, target, waiter", SERVE, (HEADER, APPEND)),
    Step("batch header", HEADER),
    Step("rules of the topic, CRC", CHECK),
    Step("leader, clock; producer state if it has one", APPEND, (CHECK, PLACE)),
    Step("place", PLACE),
    Step("write, indexes", WRITE),
    Step("written end; tell who waits", TELL, (WRITE, ANSWER)),
    Step("answer, counts", ANSWER),
    Step("high watermark", ADVANCE),
    Step("send", SEND),
    Step("phases of the turn", TURN_END, (TELL, ADVANCE, SEND)),
)
"""Steps on net_asyncio, in the order of the path."""


def main() -> None:
    """Parse arguments, count, print the table. In the counted process: run the broker."""
    if sys.argv[1:2] == ["--through"]:
        _serve(sys.argv[2], sys.argv[3:])
        return
    parser = figures.options("steps", __doc__, peer=False, rounds=None)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--requests", type=int, default=512, help="N; rounded up to whole turns")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    counted: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="blumfeld-steps-") as folder:
        for at, step in enumerate(STEPS):
            home = Path(folder) / str(at)
            counted[step.function] = measure(step.function, options.connections, options.requests, home)
    make_console().print(table(counted, options.connections))
    figures.save(options.out, counted)


def _serve(function: str, arguments: Sequence[str]) -> None:
    if function != ALL:
        _wrap(function)
    sys.argv = ["blumfeld", *arguments]
    runpy.run_module("blumfeld.cli.main", run_name="__main__", alter_sys=True)


def _wrap(function: str) -> None:
    module, _, path = function.partition(":")
    owner, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), owner)
    counted: Callable[..., Any] = partial(cls.__dict__[name])

    def method(*arguments: Any) -> Any:  # a partial alone is no method: it doesn't bind to its object
        return counted(*arguments)

    setattr(cls, name, method)


def measure(function: str, connections: int, requests: int, folder: Path) -> float:
    """Return the instructions for each request of a function with all that it calls."""
    ours = this_build()
    run = ours.command[ours.command.index("run") :]
    command = [sys.executable, "-m", "campaigns.bench.counting.steps", "--through", function, *run]
    toggle = [] if function == ALL else ["--toggle-collect=partial_vectorcall"]
    n = whole_turns(requests, connections)
    program = Program(function, command, bare=False)
    with running_server(program, folder, [*CALLGRIND_LATER, *toggle]) as running:
        running.switch_on()
        once, twice = difference(Produce, running, running.instructions, connections, n)
    return (twice - once) / n


def table(counted: dict[str, float], connections: int) -> Table:
    """Return a row for each step, and the sum."""
    title = f"Instructions of one produce request at {connections} connections: {counted[ALL]:,.0f}"
    shown = figures.table(title, ("step",), ("instructions", "share"))
    shown.add_column("function")
    for step in STEPS:
        own = counted[step.function] - sum(counted[function] for function in step.less)
        shown.add_row(step.name, f"{own:,.0f}", f"{own / counted[ALL]:.1%}", step.function.rpartition(":")[2])
    return shown


if __name__ == "__main__":
    main()
