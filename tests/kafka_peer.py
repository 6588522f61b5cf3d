"""Apache Kafka 4.3.1 beside the project, as an oracle: started on a directory, and its tools. Skips where it
isn't there.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blumfeld.testing.process import LOOPBACK, NodeProcess, free_port
from tests.shared_facts import shared_path

TOOL_SECONDS_MAX = 180
START_SECONDS_MAX = 180


def peer_script() -> str:
    """The script that runs Kafka, or a skip that says what is missing."""
    if shutil.which("java") is None:
        pytest.skip("no java")
    return str(shared_path("peer/kafka/kafka-peer"))


def tool(peer: str, *args: str) -> str:
    """Run one of Kafka's tools; what it prints, warnings included."""
    done = subprocess.run(
        [peer, "tool", *args], capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def kafka_on(
    peer: str,
    directory: Path,
    *settings: str,
    kill: bool = False,
    port: int | None = None,
    version: str = "4.3.1",
) -> Iterator[str]:
    """Kafka on ``directory/data``, once it answers; its address. Stopped in order, or by ``kill -9``.

    :param settings: ``key=value``, laid over its configuration
    :param port: its own, for a restart at the same address; the controller's is the one after it
    """
    port = port or free_port(adjacent=2)
    command = ["env", f"KAFKA_PEER_VERSION={version}", peer, "start", str(directory), str(port), *settings]
    kafka = NodeProcess("Kafka", command, directory / "kafka.log", (LOOPBACK, port), START_SECONDS_MAX)
    try:
        kafka.start()
        yield kafka.address
    finally:
        kafka.kill() if kill else kafka.stop()
