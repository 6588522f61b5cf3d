"""The processes of a cluster: started, killed, paused, stopped and started again on the same data."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from blumfeld.client.blocking import BlockingConnection
from blumfeld.testing.cluster import NodePlace, Roles, filled
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.primitives import DecodeError

START_S = 90.0
STOP_S = 60.0
"""Time that a node has to stop in good order."""
END_S = 20.0
"""Time that all nodes together have to end after the run."""
ASK_S = 2.0
"""Longest wait for an answer of a node that may be paused or cut off."""
POLL_S = 0.05
TAIL_CHARS = 2000


class NodeError(RuntimeError):
    """A node did not start; the message ends with its output."""


class Node:
    """One node of a cluster. Its processes make a group of their own, so that a signal reaches all of them."""

    def __init__(self, place: NodePlace, command: Sequence[str], folder: Path) -> None:
        self.place = place
        self.command = tuple(command)
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """The file with the command lines and the output of all its processes."""
        return self.folder / "node.log"

    @property
    def pid(self) -> int:
        """The id of its first process.

        :raises NodeError: it was never started
        """
        if self._process is None:
            raise NodeError(f"node {self.place.id} was never started")
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether its process runs, be it paused or not."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start its process without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as out:
            out.write(f"$ {shlex.join(self.command)}\n".encode())
            out.flush()
            self._process = subprocess.Popen(self.command, stdout=out, stderr=out, start_new_session=True)

    def await_answer(self, timeout_s: float = START_S) -> None:
        """Wait until it answers ApiVersions.

        :raises NodeError: it ended, or took longer
        """
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            if not self.is_up or time.monotonic() > deadline:
                why = f"did not answer within {timeout_s:.0f} s" if self.is_up else "ended"
                raise NodeError(f"node {self.place.id} {why}; {self.log_path} ends with:\n{self.printed()}")
            time.sleep(POLL_S)

    def answers(self) -> bool:
        """Whether it answers ApiVersions now."""
        with contextlib.suppress(OSError, DecodeError), self.connect() as connection:
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            return True
        return False

    def connect(self, timeout_s: float = ASK_S) -> BlockingConnection:
        """Return a new connection to its broker listener, or to its only listener.

        :raises OSError: there is no answer
        """
        return BlockingConnection(self.place.host, self.place.first_port, "cluster-faults", timeout_s)

    def printed(self) -> str:
        """Return the end of its output."""
        return self.log_path.read_text(errors="replace")[-TAIL_CHARS:]

    def kill(self) -> None:
        """Send SIGKILL to all its processes, and wait until the node has ended."""
        self._signal_all(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP to all its processes."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to all its processes."""
        self._signal_all(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM to its first process without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def await_end(self, timeout_s: float) -> bool:
        """Wait until it has ended after :meth:`terminate`; return whether it did so by itself. After the time-out it
        is killed.

        SIGTERM is not sent again: a second one would end a node of this build at once.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Cluster:
    """All nodes, each in a folder of its own below ``folder``."""

    def __init__(
        self,
        commands: Mapping[Roles, Sequence[str]],
        places: Sequence[NodePlace],
        folder: Path,
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        """:param commands: the start command of a node, by its roles
        :param prefixes: for each node a command that runs the node's command and keeps its process id"""
        self.folder = folder
        given = prefixes or [()] * len(places)
        self.nodes = tuple(
            Node(
                place,
                [*prefix, *filled(commands[place.roles], place, places, folder / f"node{place.id}")],
                folder / f"node{place.id}",
            )
            for place, prefix in zip(places, given, strict=True)
        )

    @property
    def addresses(self) -> str:
        """``bootstrap.servers`` of a client."""
        return ",".join(node.place.address for node in self.brokers)

    @property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes that clients can ask."""
        return tuple(node for node in self.nodes if node.place.is_broker)

    def node(self, node_id: int) -> Node:
        """Return the node with this id."""
        return next(node for node in self.nodes if node.place.id == node_id)

    def start(self) -> None:
        """Start all nodes, and wait until each answers.

        :raises NodeError: one did not
        """
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_answer()

    def stop(self) -> None:
        """End all nodes, paused ones too: SIGTERM to all, then SIGKILL to those that take too long.

        An exception that interrupts the wait, such as that of a second Ctrl-C, kills those that are left.
        """
        try:
            for node in self.nodes:
                node.resume()
                node.terminate()
            deadline = time.monotonic() + END_S
            for node in self.nodes:
                node.await_end(max(0.0, deadline - time.monotonic()))
        finally:
            for node in self.nodes:
                if node.is_up:
                    node.kill()
