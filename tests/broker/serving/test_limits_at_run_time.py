"""Limits of connections that an administrator changes while a broker serves."""

from __future__ import annotations

import contextlib
import socket
import time

from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from campaigns.raw_connection import RawConnection

PATIENCE_S = 20.0


def is_let_in(port: int) -> bool:
    """Whether a new connection stays open."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.settimeout(0.1)
        with contextlib.suppress(TimeoutError, ConnectionError):
            return client.recv(1) != b""
    return True


def eventually_is(port: int, let_in: bool) -> bool:
    """The change reaches the listener with the cluster's metadata."""
    end = time.monotonic() + PATIENCE_S
    while is_let_in(port) is not let_in:
        if time.monotonic() > end:
            return False
    return True


def test_a_limit_holds_from_the_change_on() -> None:
    """And is lifted by another. Connections that are there stay."""
    with EmbeddedBroker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        admin = RawConnection(broker.bootstrap_servers)
        for value, let_in in (("1", False), ("100", True)):
            change = AlterConfigsResource(
                resource_type=BROKER_RESOURCE,
                resource_name="",
                configs=[AlterableConfig(name="max.connections", config_operation=0, value=value)],
            )
            answer = admin.ask(
                IncrementalAlterConfigsRequest(resources=[change]), 1, IncrementalAlterConfigsResponse
            )
            assert answer.responses[0].error_code == 0
            assert eventually_is(port, let_in)
        admin.close()
