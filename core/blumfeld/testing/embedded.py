"""A real broker inside a test's process: a thread and an event loop of its own, on a free loopback port.

It is composed as ``blumfeld run`` composes one, so a client sees what it would see of a process. Only syncs are left
out, since the directory is removed with the broker.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.node import Node
from blumfeld.kernel.process import loop_factory
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.plugging.errors import Faults
from blumfeld.plugging.registry import Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.testing.unsynced_files import UnsyncedFiles

CONFIG: Mapping[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}
"""Configuration that differs from Kafka's defaults, which suit clusters. The argument ``config`` overrides it."""

STOP_GRACE_MS = 50
"""Time that a stop waits for open requests. At the end of a test a fetch that waits for records waits in vain."""
START_TIMEOUT_S = 60.0
"""Time for a start, and for a call on the broker's thread."""
JOIN_S = 10.0
"""Time for the thread's end after a start that took too long. A thread that is stuck is left behind."""


class DefectError(RuntimeError):
    """An error escaped inside the broker and stopped it. This is a bug of Blumfeld or of a plug-in, never of the
    test.
    """


class EmbeddedBroker:
    """A broker while the ``with`` block lasts. Any number may run at once, in one process or in many.

    :param config: Kafka's own keys, as in a manifest's ``[config]``
    :param storage: the storage plug-in: ``storage_memory`` or ``storage_local``, or any that is installed
    :param storage_options: its options
    :param data_dir: a directory that outlives the broker, to restart on; by default one that is removed
    :param manifest: further sections, as a manifest's TOML gives them: ``{"groups": {"plugins": []}}``
    :param start_timeout_s: longest time for the start
    :raises ManifestError: these can't be composed; nothing was opened
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        storage: str = "storage_memory",
        storage_options: Mapping[str, Any] | None = None,
        data_dir: str | None = None,
        manifest: Mapping[str, Any] | None = None,
        registry: Registry | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._start_timeout_s = start_timeout_s
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._defect: tuple[str, BaseException] | None = None
        self._own_dir = data_dir is None
        raw: dict[str, Any] = {
            "node": {"data_dir": data_dir or "a temporary directory"},
            "network": {
                "listeners": [{"name": "PLAINTEXT", "bind": "127.0.0.1:0", "inter_broker": True}],
            },
            "storage": {"plugin": storage, "options": dict(storage_options or {})},
            "config": {**CONFIG, **(config or {})},
        }
        for section, values in (manifest or {}).items():
            raw[section] = {**raw.get(section, {}), **values}
        self._raw = raw
        self._registry = registry
        self._plan = self._planned()
        self._node: Node | None = None
        self._starting: Node | None = None
        """The node whose start runs."""

    def _planned(self) -> Plan:
        source = type(self).__name__
        faults = Faults(source)
        return make_plan(
            decode_section(self._raw, Manifest, source, faults=faults), source, self._registry, faults
        )

    # For the test

    @property
    def node(self) -> Node:
        """The running node. Only the broker's own thread may touch it (:meth:`call`)."""
        if self._node is None:
            raise RuntimeError("the broker does not run: use it inside its with block")
        return self._node

    @property
    def host(self) -> str:
        """The host on which the broker listens."""
        return self.node.listeners[0].host

    @property
    def port(self) -> int:
        """The free port that the broker found."""
        return self.node.listeners[0].port

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT``, the form of a client's ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> str:
        """The log directory."""
        return self.node.composition.data_dir

    def call(self, function: Callable[[], Any]) -> Any:
        """Run ``function()`` on the broker's own thread. Return its result, or raise its error.

        :raises TimeoutError: the thread did not run it within a minute
        """
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except Exception as error:
                outcome.set_exception(error)

        assert self.node is not None
        assert self._loop is not None
        self._loop.call_soon_threadsafe(run)
        try:
            return outcome.result(START_TIMEOUT_S)
        except TimeoutError:
            if outcome.done():
                raise  # the function's own
            said = f"the broker's thread did not run the call within {START_TIMEOUT_S:g} s: something holds its loop"
            raise TimeoutError(said) from None

    # Life

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except DefectError as defect:
            if error is None:
                raise
            error.add_note(f"{defect}: {defect.__cause__!r}")

    def start(self) -> None:
        """Start the broker. When this returns, a client that connects is served. It blocks the calling thread
        meanwhile.

        :raises StartError: a part could not start; every part that had started was stopped
        :raises TimeoutError: the start took longer than ``start_timeout_s``; it was given up
        """
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._own_dir:
            self._temporary = tempfile.TemporaryDirectory(prefix="blumfeld-", ignore_cleanup_errors=True)
            self._raw["node"] = {**self._raw["node"], "data_dir": self._temporary.name}
            self._plan = self._planned()
        self._defect = None
        started: Future[Node] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="blumfeld-embedded", daemon=True
        )
        self._thread.start()
        try:
            self._node = started.result(self._start_timeout_s)
        except TimeoutError:
            if started.done():
                self._clean_up()
                raise  # a part's own
            part = self._starting.starting if self._starting is not None else "node"
            self._clean_up(JOIN_S)
            raise TimeoutError(
                f"the broker did not start within {self._start_timeout_s:g} s: it was starting its part {part}. Its "
                "events are in the loggers blumfeld.…, which pytest shows with the failure; "
                "EmbeddedBroker(start_timeout_s=…) gives it longer"
            ) from None
        except BaseException:
            self._clean_up()
            raise

    def stop(self) -> None:
        """Stop the broker and remove its directory. May be called twice.

        :raises DefectError: an error escaped while the broker ran
        """
        self._clean_up()
        if self._defect is not None:
            raise self._taken_defect()

    def _taken_defect(self) -> DefectError:
        assert self._defect is not None
        (where, error), self._defect = self._defect, None
        defect = DefectError(f"a defect stopped the broker, in {where}")
        defect.__cause__ = error
        return defect

    def _clean_up(self, patience_s: float | None = None) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end_soon()
            thread.join(patience_s)
        self._node = self._starting = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _end_soon(self) -> None:
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                return  # the loop closed meanwhile, as it should

    # In the broker's thread

    def _run(self, started: Future[Node]) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory(self._plan)) as runner:
                runner.run(self._main(started))
        except BaseException as error:  # any error belongs to the thread that waits for the start
            if not started.done():
                started.set_exception(error)
            elif self._defect is None:
                self._defect = ("its thread", error)

    async def _main(self, started: Future[Node]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._stray_error)
        self._ended = asyncio.Event()
        files = UnsyncedFiles() if self._own_dir else RealFiles()
        runtime = AsyncioRuntime(self._note_defect, files=files)
        logs = EventLogs(_standard_logging, level="info")
        logs.port_is_open(lambda prepare, use: use(prepare()))
        try:
            node = self._starting = Node(self._plan, runtime, logs)
            start = asyncio.ensure_future(node.start())
            ended = asyncio.ensure_future(self._ended.wait())
            await asyncio.wait((start, ended), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                started.set_result(node)
                await ended
            else:  # given up, or a defect: a start that waits for other nodes would never end
                start.cancel()
                await asyncio.wait((start,))
                if self._defect is not None:
                    raise self._taken_defect()
            await node.stop(STOP_GRACE_MS)
        finally:
            await runtime.close()

    def _note_defect(self, where: str, error: BaseException) -> None:
        if self._defect is None:
            self._defect = (where, error)
        if self._ended is not None:
            self._ended.set()

    def _stray_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message"))
        self._note_defect(message, error if error is not None else RuntimeError(message))


def _standard_logging() -> Render:
    """Send events to the loggers ``blumfeld.…`` of the standard library, where pytest captures and shows them."""

    def render(_: int, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
        exc_info = values.pop("exc_info", None)
        said = " ".join(f"{name}={value!r}" for name, value in values.items())
        log = logging.getLogger(f"blumfeld.{logger}")
        log.log(logging.getLevelName(level.upper()), "%s %s", event, said, exc_info=exc_info)

    return render
