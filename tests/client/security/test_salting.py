"""The work of a login that takes milliseconds blocks no loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from blumfeld.client.asyncio_connection import connect
from blumfeld.client.security.command_config import client_security
from blumfeld.client.security.sasl import Salting
from blumfeld.kernel.runtime.real_files import RealFiles
from tests.secured import secured_broker


def test_the_asyncio_client_salts_in_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    salted = Salting.salted

    def noted(self: Salting) -> bytes:
        threads.append(threading.current_thread())
        return salted(self)

    with secured_broker(tmp_path) as (broker, files):
        security = client_security(files.properties(), RealFiles(), print)
        monkeypatch.setattr(Salting, "salted", noted)

        async def log_in() -> None:
            connection = await connect(broker.host, broker.port, "test", security)
            connection.close()

        asyncio.run(log_in())
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
