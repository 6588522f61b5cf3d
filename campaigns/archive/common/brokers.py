"""Brokers that can be killed and started again on the same data and port: ours, or Apache Kafka by a script."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from blumfeld.testing.brokers.process import BrokerProcess, free_port
from campaigns.archive.common.process import Command

READY_S = 90.0


class Broker(Protocol):
    """One that is under test; ``start`` returns when clients are served."""

    @property
    def address(self) -> str:
        """``host:port``."""
        ...

    def start(self) -> None:
        """On the data that is there."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait for it to be gone."""
        ...


def our_broker(folder: Path) -> BrokerProcess:
    """Of this build; not started."""
    folder.mkdir(parents=True, exist_ok=True)
    return BrokerProcess(folder)


class PeerBroker:
    """``SCRIPT start DIR PORT``: Apache Kafka in one process that keeps its data in DIR."""

    def __init__(self, script: str, folder: Path) -> None:
        self._script = script
        self._folder = folder
        self._port = free_port()
        self._command: Command | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Until it answers.

        :raises RuntimeError: it ended, or did not answer in time
        """
        command = [self._script, "start", str(self._folder / "data"), str(self._port)]
        self._command = Command(command, self._folder / "peer.log")
        deadline = time.monotonic() + READY_S
        while not _answers(self.address):
            if not self._command.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the peer does not start: see {self._folder / 'peer.err'}")

    def kill(self) -> None:
        """SIGKILL to it and to what it started."""
        if self._command is not None:
            self._command.kill_all()


def _answers(address: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2.0)
    except KafkaException:
        return False
    return True
