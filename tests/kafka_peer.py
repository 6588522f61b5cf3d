"""Apache Kafka 4.3.1 beside the project, as an oracle: started on a directory, and its tools. Skips where it
isn't there.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from blumfeld_bench.running.servers import free_port
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
    port, log = port or free_pair(), directory / "kafka.log"
    with log.open("w") as out:
        command = [peer, "start", str(directory), str(port), *settings]
        environment = {**os.environ, "KAFKA_PEER_VERSION": version}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while "Kafka Server started" not in log.read_text():
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill() if kill else process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def free_pair() -> int:
    """A port that was free a moment ago, as was the one after it: the controller's."""
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port
