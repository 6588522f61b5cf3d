"""Unmodified clients over TLS and mutual TLS, on both transports."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from blumfeld.testing.process import BrokerProcess, free_port
from blumfeld_net_uring.io_uring.probe import probe
from campaigns.certificates import private
from tests.plugins.security.tls.authority import AUTHORITY, CLIENT, SERVER

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # kafka-python reads its schemas the old way
]

RECORDS = 200
WAIT_S = 30.0


class Running(NamedTuple):
    """A broker with a TLS listener and one that demands certificates."""

    tls: str
    mutual: str
    trust: str
    certificate: str
    key: str

    def librdkafka(self, *, mutual: bool) -> dict[str, Any]:
        """Its settings."""
        own = {"ssl.certificate.location": self.certificate, "ssl.key.location": self.key}
        return {
            "bootstrap.servers": self.mutual if mutual else self.tls,
            "security.protocol": "SSL",
            "ssl.ca.location": self.trust,
            "log_level": 2,
            **(own if mutual else {}),
        }


@pytest.fixture(scope="module", params=["net_asyncio", "net_uring"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if request.param == "net_uring" and not probe().available:
        pytest.skip(str(probe().why_not))
    folder = tmp_path_factory.mktemp(request.param)
    tls, mutual = free_port(), free_port()
    trust = private(folder / "trust.pem", AUTHORITY.pem)
    rows = ",".join(
        f'{{name="{name}",kind="{kind}",bind="127.0.0.1:{port}",inter_broker={str(inter).lower()}}}'
        for name, kind, port, inter in (
            ("PLAINTEXT", "broker", 0, True),
            ("TLS", "broker", tls, False),
            ("MUTUAL", "broker", mutual, False),
            ("CONTROLLER", "controller", 0, False),
        )
    )
    keys = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": private(folder / "node.pem", SERVER.pem()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": private(folder / "node.p12", SERVER.p12("secret")),
        "listener.name.mutual.ssl.keystore.password": "secret",
    }
    settings = [
        f"network.plugin={request.param}",
        f"network.listeners=[{rows}]",
        "security.plugin=security",
        *(f'config."{key}"="{value}"' for key, value in keys.items()),
    ]
    broker = BrokerProcess(folder, settings=settings)
    broker.start()
    try:
        yield Running(
            f"localhost:{tls}",
            f"localhost:{mutual}",
            trust,
            private(folder / "client.pem", CLIENT.certificate_pem),
            private(folder / "client.key", CLIENT.key_pem()),
        )
    finally:
        broker.stop()
    assert broker.traceback() == ""


@pytest.mark.parametrize("mutual", [False, True])
def test_librdkafka_produces_and_consumes(running: Running, mutual: bool) -> None:
    from confluent_kafka import Consumer, Producer

    topic = f"confluent-{mutual}"
    failed: list[Any] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(running.librdkafka(mutual=mutual))
    for nth in range(RECORDS):
        producer.produce(topic, b"%d" % nth * 1_000, callback=told)
    assert producer.flush(WAIT_S) == 0
    assert failed == []
    given = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**running.librdkafka(mutual=mutual), **given})
    consumer.subscribe([topic])
    got: list[bytes | None] = []
    while len(got) < RECORDS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            got.append(message.value())
    consumer.close()
    assert sorted(filter(None, got)) == sorted(b"%d" % nth * 1_000 for nth in range(RECORDS))


def test_librdkafka_without_a_certificate_gets_nothing(running: Running) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    given = running.librdkafka(mutual=False) | {"bootstrap.servers": running.mutual}
    with pytest.raises(KafkaException):
        AdminClient(given).list_topics(timeout=3)


@pytest.mark.parametrize("mutual", [False, True])
def test_kafka_python_produces_and_consumes(running: Running, mutual: bool) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic = f"kafka-python-{mutual}"
    given: dict[str, Any] = {
        "bootstrap_servers": running.mutual if mutual else running.tls,
        "security_protocol": "SSL",
        "ssl_cafile": running.trust,
    }
    if mutual:
        given |= {"ssl_certfile": running.certificate, "ssl_keyfile": running.key}
    producer = KafkaProducer(**given)
    producer.send(topic, b"x" * 500_000).get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **given)
    assert next(iter(consumer)).value == b"x" * 500_000
    consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat isn't installed")
def test_kcat_produces_and_consumes(running: Running) -> None:
    settings = [
        word
        for key, value in running.librdkafka(mutual=True).items()
        if key != "bootstrap.servers"
        for word in ("-X", f"{key}={value}")
    ]
    command = ["kcat", "-b", running.mutual, "-t", "kcat", *settings]
    subprocess.run([*command, "-P"], input=b"hello\n", check=True, timeout=WAIT_S)
    read = subprocess.run([*command, "-C", "-e", "-q"], capture_output=True, check=True, timeout=WAIT_S)
    assert read.stdout == b"hello\n"
