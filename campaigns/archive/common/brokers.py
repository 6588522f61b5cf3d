"""Brokers that can be killed and started again on the same data and port: ours, or Apache Kafka by a script."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from blumfeld.testing.process import BrokerProcess, free_port
from blumfeld_bench.runs.servers import answers
from campaigns.archive.common.process import Command

READY_S = 180.0
"""Longest start of a broker. Beside Spark and its 30 processes on two cores, one took over a minute."""


class Broker(Protocol):
    """A broker that tests kill and start again."""

    @property
    def address(self) -> str:
        """``host:port`` of the broker, the same at each start."""
        ...

    def start(self) -> None:
        """Starts the broker on its data, and returns when it serves clients."""
        ...

    def kill(self) -> None:
        """Kills the broker by SIGKILL and waits for its end."""
        ...


def our_broker(folder: Path, settings: Sequence[str] = (), patience: float = 1.0) -> BrokerProcess:
    """Returns a broker of this build, not started.

    :param settings: laid over the manifest
    :param patience: factor for the time that a start may take
    """
    folder.mkdir(parents=True, exist_ok=True)
    return BrokerProcess(folder, settings=settings, start_timeout_s=READY_S * patience)


class PeerBroker:
    """Apache Kafka by a script: ``SCRIPT start DIR PORT`` starts it in one process with its data in DIR."""

    def __init__(self, script: str, folder: Path) -> None:
        self._script = script
        self._folder = folder
        self._port = free_port()
        self._command: Command | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """``host:port`` of the broker, the same at each start."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts the broker and returns when it answers.

        :raises RuntimeError: the broker ended, or didn't answer in time
        """
        command = [self._script, "start", str(self._folder / "data"), str(self._port)]
        self._command = Command(command, self._folder / "peer.log")
        deadline = time.monotonic() + READY_S
        while not answers(self._port):
            time.sleep(0.1)
            if not self._command.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the peer does not start: see {self._folder / 'peer.err'}")

    def kill(self) -> None:
        """Kills the script and all processes that it started."""
        if self._command is not None:
            self._command.kill_all()
