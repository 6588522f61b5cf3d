"""Brokers that can be killed and started again on the same data and port: ours, or Apache Kafka by a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from blumfeld.testing.process import LOOPBACK, BrokerProcess, NodeProcess, free_port

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


def peer_broker(script: str, folder: Path) -> NodeProcess:
    """Returns Apache Kafka by a script, not started: ``SCRIPT start DIR PORT`` starts it with its data in DIR."""
    port = free_port(adjacent=2)
    command = [script, "start", str(folder / "data"), str(port)]
    return NodeProcess("the peer", command, folder / "peer.log", (LOOPBACK, port), READY_S)
