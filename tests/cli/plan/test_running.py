"""A running broker's document, over the protocol; and what stands in the way of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from blumfeld.cli.plan import running
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.running import plan_of_broker, plan_of_url
from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.security.command_config import ClientSecurity
from blumfeld.client.security.sasl import Credentials
from blumfeld.config.definitions import BUILD_KEY
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.differences import differences
from blumfeld.kernel.description.document import decode_document
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult


def test_a_running_broker_says_the_plan_that_it_was_made_of() -> None:
    with EmbeddedBroker(config={"log.segment.bytes": 1 << 20}) as broker:
        said = plan_of_broker(broker.host, broker.port)
        assert said == decode_document(broker.node.plan_json())
        planned = asyncio.run(describe(broker.node.plan)).document
    assert differences(said, planned) == []
    assert said == planned


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port on which one connection is taken."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                answer(connection)

        thread = Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def hangs_up(connection: socket.socket) -> None:
    connection.recv(1024)


def stays_silent(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def speaks_http(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_port_that_nobody_listens_on_is_not_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(NoPlanError, match=rf"^127\.0\.0\.1:{port}: not reachable: "):
        plan_of_broker("127.0.0.1", port)
    with pytest.raises(NoPlanError, match="not reachable: "):
        plan_of_url(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("host", ["a..example", "a" * 64 + ".example"])
def test_what_is_no_name_of_a_host_is_not_reachable(host: str) -> None:
    with pytest.raises(NoPlanError, match=f"not reachable: '{host}' is no name of a host"):
        plan_of_broker(host, 9092)
    with pytest.raises(OSError, match="is no name of a host"):
        BlockingConnection(host, 9092, "test", 1.0)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (hangs_up, r"may want TLS or a login.*\(--command-config FILE\)"),
        (speaks_http, "it hung up .*a server of another protocol"),
    ],
)
def test_another_protocol_is_said(answer: Callable[[socket.socket], None], told: str) -> None:
    with server(answer) as port, pytest.raises(NoPlanError, match=told):
        plan_of_broker("127.0.0.1", port)


def test_a_server_that_hangs_up_in_a_login_was_reachable() -> None:
    login = ClientSecurity("SASL_PLAINTEXT", None, lambda: Credentials("PLAIN", "u", "p"))
    with server(hangs_up) as port, pytest.raises(NoPlanError, match=f"^127.0.0.1:{port}: the server closed"):
        plan_of_broker("127.0.0.1", port, login)


def test_a_silent_server_is_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_S_MAX", 0.05)
    with server(stays_silent) as port, pytest.raises(NoPlanError, match=r"no answer within 0\.05 s"):
        plan_of_broker("127.0.0.1", port)


def sends_a_byte_now_and_then(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    with suppress(OSError):
        for _ in range(500):
            connection.sendall(b" ")
            time.sleep(0.01)


def test_a_metrics_port_that_never_ends_its_answer_is_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "ANSWER_S_MAX", 0.2)
    with (
        server(sends_a_byte_now_and_then) as port,
        pytest.raises(NoPlanError, match=r"no whole answer within 0\.2 s"),
    ):
        plan_of_url(f"http://127.0.0.1:{port}")


def test_a_metrics_port_of_another_protocol_is_said() -> None:
    def greets(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-server\r\n")

    with server(greets) as port, pytest.raises(NoPlanError, match=r"no HTTP .*SSH-2\.0-server"):
        plan_of_url(f"http://127.0.0.1:{port}")
    with pytest.raises(NoPlanError, match="nonnumeric port"):
        plan_of_url("http://127.0.0.1:port")


def result(code: int = 0, *values: str, message: str | None = None) -> DescribeConfigsResult:
    configs = [DescribeConfigsResourceResult(name=BUILD_KEY, value=value) for value in values]
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=4, resource_name="1", configs=configs
    )


OTHERS = result(ErrorCode.INVALID_REQUEST, message="this is broker 1")


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        (
            [result(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 2,
            "not authorised: .*DescribeConfigs on the cluster",
        ),
        ([OTHERS, result()], "no Blumfeld that knows its build"),
        ([OTHERS], "it doesn't describe itself: this is broker 1"),
        ([], "it doesn't describe itself: no broker"),
        ([result(0, "{}")], "no plan: "),
    ],
)
def test_each_answer_without_a_plan_has_its_reason(
    results: list[DescribeConfigsResult], complaint: str
) -> None:
    with pytest.raises(NoPlanError, match=f"^h:1: .*{complaint}"):
        running._document(results, "h:1")
