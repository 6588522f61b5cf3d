"""Runs a node as a process: event loop, signals, defects, descriptors, and garbage collection.

An edge module: it deals with the operating system.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.node import GRACE_MS, MakeBroker, Node, make_broker
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.watching.event_log import EventLogs, Prepare, Render
from blumfeld.plugging.plugins import PluginSet
from blumfeld.spi.defects import place_of
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import NodeFailure
from blumfeld.spi.transport import LoopFactory

SETTLE_MS = 250
"""Pause between the ready line and :func:`settle`. That takes about a millisecond, because :func:`spare_the_collector`
has frozen all imported objects before; with them it took forty.
"""
COLLECT_AFTER_OBJECTS = 20_000
"""New objects between two collections. CPython's 700 suits small programs; our requests leave few cycles."""
COLLECT_MIDDLE_AFTER = 5
"""Young collections between two of the middle generation. With 20, a large request has 400,000 objects by then, and
to traverse them takes 50 ms."""
SWITCH_INTERVAL_S = 0.0005
"""Longest time that a worker thread keeps the interpreter lock when the loop wants it. A turn gives the lock up at each
system call, so CPython's 5 ms could be added to each of them. It is set when the node is ready: during recovery the
workers do the work that counts.
"""

CLEAN_STOP = 0
STOPPED_BY_DEFECT = 1


class Process:
    """Runs one node until a signal, or a defect, ends it."""

    def __init__(
        self,
        plan: Plan,
        logs: EventLogs,
        ready: Callable[[Node], None],
        make_broker: MakeBroker = make_broker,
    ) -> None:
        self._plan = plan
        self._logs = logs
        self._events = logs.named("process")
        self._ready = ready
        self._make_broker = make_broker
        self._ended: asyncio.Event
        self._exit_code = CLEAN_STOP

    def run(self) -> int:
        """Run to the end: 0 after SIGTERM, SIGINT or SIGHUP, 1 after a defect or a ``NodeFailure``.

        A second SIGTERM or SIGINT ends the process at once. SIGHUP may come several times: the terminal has gone, or
        the supervisor with each of its threads.

        :raises StartError: a part could not start
        :raises PluginContractError: a plug-in broke its contract
        :raises ManifestError: a plug-in can't do what ``[config]`` says
        """
        raise_fd_limit()
        spare_the_collector()
        with asyncio.Runner(loop_factory=loop_factory(self._plan)) as runner:
            return runner.run(self._main())

    async def _main(self) -> int:
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asks to go on
            loop.add_signal_handler(signal.SIGHUP, self._ended.set)
        runtime = AsyncioRuntime(self._defect)
        loop.set_exception_handler(partial(self._stray_error, RepeatedEvents(runtime)))
        try:
            node = Node(self._plan, runtime, self._logs, self._make_broker)
            if await self._starts(node):
                self._ready(node)
                sys.setswitchinterval(SWITCH_INTERVAL_S)
                self._logs.port_is_open(_offload_by(runtime))
                runtime.call_later(SETTLE_MS, settle)
                await self._ended.wait()
            await node.stop(GRACE_MS)
        finally:
            await runtime.close()
        return self._exit_code

    async def _starts(self, node: Node) -> bool:
        """Start the node. Returns False if a signal came first; the start is then cancelled."""
        start = asyncio.ensure_future(node.start())
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait((start, ended), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            ended.cancel()
            start.result()
            return True
        start.cancel()
        await asyncio.wait((start,))
        return False

    def _signalled(self, number: int) -> None:
        if self._ended.is_set():
            os._exit(128 + number)  # a second signal asks to stop at once; recovery makes that safe
        self._events.debug("signal", signal=signal.Signals(number).name)
        self._ended.set()

    def _defect(self, where: str, error: BaseException) -> None:
        if isinstance(error, NodeFailure):
            self._events.error("the node can't go on", error=str(error))
        else:
            self._events.error("a defect stops the node", where=where, exc_info=error)
        self._exit_code = STOPPED_BY_DEFECT
        self._ended.set()

    def _stray_error(
        self, strays: RepeatedEvents, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]
    ) -> None:
        """Log an error of a loop's callback. A client may cause it as often as it likes."""
        error, message = context.get("exception"), context.get("message")
        key = message if error is None else place_of(error)
        strays.say(self._events.error, "an error reached the loop", key, message=message, exc_info=error)


def raise_fd_limit() -> None:
    """Raise the soft limit of descriptors to the hard one, as Java does. The low default is for programs that use
    ``select``.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # the limit then stays as it is
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory(plan: Plan) -> LoopFactory | None:
    """Returns the factory of the loop that the transport needs; ``None`` for asyncio's own."""
    for planned in plan.of_role("network"):
        plugins = PluginSet([planned])
        return cast("LoopFactory | None", plugins.call(planned, "blumfeld_loop_factory"))
    return None


def _offload_by(runtime: AsyncioRuntime) -> Callable[[Prepare, Callable[[Render], None]], None]:
    def offload(prepare: Prepare, use: Callable[[Render], None]) -> None:
        async def prepared() -> None:
            use(await runtime.offload(prepare))

        runtime.spawn(prepared(), "set up logging")

    return offload


def spare_the_collector() -> None:
    """Exempt all imported objects from garbage collection, because they stay for good, and collect less often."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, COLLECT_MIDDLE_AFTER, 200)
    gc.enable()


def settle() -> None:
    """Collect garbage once after the start, then exempt the remaining objects, too."""
    gc.collect()
    gc.freeze()
