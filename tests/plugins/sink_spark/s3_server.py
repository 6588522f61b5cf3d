"""S3 on this machine, if ``moto_server`` is installed."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def s3_server(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields the URL of a path in an empty bucket. The environment has the endpoint and keys."""
    command = shutil.which("moto_server")
    if command is None:
        pytest.skip("moto_server is not installed (pip install 'moto[server]')")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for key, value in {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        patch.setenv(key, value)
    with (
        (folder / "moto.log").open("wb") as log,
        subprocess.Popen([command, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log) as server,
    ):
        try:
            _make_bucket(port)
            yield "s3://ticks/archive"
        finally:
            server.terminate()


def _make_bucket(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("PUT", "/ticks")
            assert connection.getresponse().status == 200
            connection.close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
