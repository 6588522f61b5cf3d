"""Runs the nodes of one manifest as processes: starts, restarts and stops them, and joins their output.

An edge module: it deals with processes and signals. The decisions are those of
:mod:`blumfeld.kernel.supervising.restarts`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import BinaryIO

import anyio
from anyio.abc import ByteReceiveStream, Process, TaskGroup

from blumfeld.kernel.supervising.lines import Lines
from blumfeld.kernel.supervising.restarts import (
    CLEAN_STOP,
    READY,
    STOP_S_MAX,
    GiveUp,
    Restarts,
    stop_order,
)
from blumfeld.spi.hooks import EventLog

LEADER_S_MAX = 5.0
"""Longest search for the quorum's leader before a stop, with TLS and a login."""
LAST_LINES_S = 1.0
"""Time to read the last lines of a node that has ended."""

AskLeader = Callable[[], Awaitable[int | None]]
"""Returns the node id of the quorum's leader, or ``None``."""


def run_on_a_loop(main: Callable[[], Awaitable[int]]) -> int:
    """Run ``main`` on a loop of its own. Only this module knows anyio (ADR 0031)."""
    return anyio.run(main)


class SupervisedNode:
    """One node: its command, and its process while it runs."""

    def __init__(self, node_id: int, command: Sequence[str], *, is_controller: bool) -> None:
        self.id = node_id
        self.command = tuple(command)
        self.is_controller = is_controller
        self.process: Process | None = None
        self.restarts = Restarts()
        self.is_ready = False
        self.ended = anyio.Event()
        """Set when the node has ended and isn't started again."""


class Supervisor:
    """Keeps nodes alive until a signal comes or one of them can't be run.

    :param ask_leader: asks the cluster; it may fail with ``OSError``
    :param all_ready: called once, when every node has served for the first time
    """

    def __init__(
        self,
        nodes: Sequence[SupervisedNode],
        events: EventLog,
        ask_leader: AskLeader,
        all_ready: Callable[[], None],
        out: BinaryIO | None = None,
        err: BinaryIO | None = None,
    ) -> None:
        self._nodes = tuple(nodes)
        self._events = events
        self._ask_leader = ask_leader
        self._all_ready = all_ready
        self._out = sys.stdout.buffer if out is None else out
        self._err = sys.stderr.buffer if err is None else err
        self._said_ready = False
        self._status = CLEAN_STOP
        self._stop: anyio.Event

    async def run(self) -> int:
        """Run to the end: 0 after SIGTERM or SIGINT, else the status of the node that can't be run.

        No node of this supervisor is left when it returns. A second signal kills the nodes at once, and the status is
        128 + its number.
        """
        self._stop = anyio.Event()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals, signals)
                for node in self._nodes:
                    tasks.start_soon(self._keep, node, tasks)
                await self._stop.wait()
                await self._stop_all()
                tasks.cancel_scope.cancel()
        return self._status

    async def _watch_signals(self, signals: object) -> None:
        async for number in signals:  # type: ignore[attr-defined]
            if self._stop.is_set():
                self._status = 128 + number
                for node in self._nodes:
                    _kill(node)
            self._stop.set()

    async def _keep(self, node: SupervisedNode, tasks: TaskGroup) -> None:
        """Start the node, and start it again for as long as its rules say."""
        try:
            while not self._stop.is_set():
                status = await self._run_once(node)
                if self._stop.is_set():
                    return
                decision = node.restarts.ended(_now_ms(), status)
                if isinstance(decision, GiveUp):
                    self._events.error("a node can't be run: all are stopped", node=node.id, status=status)
                    self._status = decision.status
                    self._stop.set()
                    return
                if status != CLEAN_STOP:
                    self._events.warning(
                        "node ended, starting it again",
                        node=node.id,
                        status=status,
                        after_ms=decision.after_ms,
                    )
                with anyio.move_on_after(decision.after_ms / 1000):
                    await self._stop.wait()
        finally:
            node.ended.set()

    async def _run_once(self, node: SupervisedNode) -> int:
        """Run one process of the node to its end. Returns its status as a shell does."""
        # Ctrl-C in a terminal signals a whole group of processes. The nodes have groups of their own, or all of them
        # would stop at once instead of in order.
        async with await anyio.open_process(node.command, stdin=None, start_new_session=True) as process:
            node.process = process
            if self._stop.is_set():  # the stop came while the process was being made, and didn't see it
                process.terminate()
            async with anyio.create_task_group() as pumps:
                assert process.stdout is not None
                assert process.stderr is not None
                pumps.start_soon(self._pump, node, process.stdout, self._out)
                pumps.start_soon(self._pump, node, process.stderr, self._err)
                await process.wait()
                # Whatever the node started may hold its pipes open.
                pumps.cancel_scope.deadline = anyio.current_time() + LAST_LINES_S
            node.process = None
            node.is_ready = False
        status = process.returncode
        assert status is not None
        return 128 - status if status < 0 else status

    async def _pump(self, node: SupervisedNode, stream: ByteReceiveStream, to: BinaryIO) -> None:
        lines = Lines(node.id)
        async for data in stream:
            for line in lines.take(data):
                self._write(to, line)
                if READY in line and to is self._out:
                    self._is_ready(node)
        for line in lines.end():
            self._write(to, line)

    def _write(self, to: BinaryIO, line: bytes) -> None:
        try:
            to.write(line)
            to.flush()
        except OSError:
            return  # nobody reads any more, which must not stop the nodes

    def _is_ready(self, node: SupervisedNode) -> None:
        node.is_ready = True
        node.restarts.ready(_now_ms())
        if not self._said_ready and all(supervised_node.is_ready for supervised_node in self._nodes):
            self._said_ready = True
            self._all_ready()

    async def _stop_all(self) -> None:
        """Stop the nodes in their order, one group at a time."""
        running = [node for node in self._nodes if not node.ended.is_set()]
        leader = await self._leader() if len(running) > 1 else None
        controllers = [node.id for node in self._nodes if node.is_controller]
        by_id = {node.id: node for node in running}
        for group in stop_order(list(by_id), controllers, leader):
            async with anyio.create_task_group() as tasks:
                for node_id in group:
                    tasks.start_soon(self._end, by_id[node_id])

    async def _leader(self) -> int | None:
        reason = f"no answer within {LEADER_S_MAX:g} s"
        with anyio.move_on_after(LEADER_S_MAX):
            try:
                return await self._ask_leader()
            except OSError as error:
                reason = str(error)
        self._events.warning("the quorum's leader isn't known, so it may not stop last", error=reason)
        return None

    async def _end(self, node: SupervisedNode) -> None:
        if node.process is not None:
            node.process.terminate()
        with anyio.move_on_after(STOP_S_MAX):
            await node.ended.wait()
            return
        self._events.warning("node didn't stop, killing it", node=node.id, waited_s=STOP_S_MAX)
        _kill(node)
        await node.ended.wait()


def _kill(node: SupervisedNode) -> None:
    if node.process is not None:
        node.process.kill()


def _now_ms() -> int:
    return round(anyio.current_time() * 1000)
