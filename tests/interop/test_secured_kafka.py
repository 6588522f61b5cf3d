"""The tools at a real Kafka with SASL_SSL, SCRAM and ACLs: their login, checked against another implementation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blumfeld.cli.app import run_app
from blumfeld.testing.process import free_port
from blumfeld_bench.command import app as bench_app
from blumfeld_bench.result import load_result
from tests.bench.test_command_config import DRIVERS
from tests.kafka_peer import kafka_on, peer_script
from tests.secured import ADMIN, ALICE, MODULE, Secured, add_scram, password_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MECHANISMS = ("scram-sha-256", "scram-sha-512")


class Kafka:
    """A Kafka, its secured listener, and the files of a client."""

    def __init__(self, port: int, files: Secured) -> None:
        self.port, self.files = port, files
        self.address = f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    peer, files = peer_script(), Secured(folder)
    port = free_port(adjacent=3)
    secured = port + 2
    settings = (
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1},CLIENTS://127.0.0.1:{secured}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{secured}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        *(f"listener.name.clients.{name}.sasl.jaas.config={MODULE} required;" for name in MECHANISMS),
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={files.keystore}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:{ADMIN};User:ANONYMOUS",
    )
    with kafka_on(peer, folder / "data", *settings, port=port):
        add_scram("127.0.0.1", port, None, ADMIN, ALICE)
        yield Kafka(secured, files)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_cluster_reads_a_secured_kafka(
    mechanism: str, kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kafka.files.properties(sasl_mechanism=mechanism)
    assert (
        run_app(["cluster", "status", "--json", "--bootstrap", kafka.address, "--command-config", config])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["quorum"]["leader"] == 1
    assert [node["answers"] for node in told["nodes"]] == [True]


@pytest.mark.parametrize("driver", DRIVERS)
def test_bench_measures_a_secured_kafka(driver: str, kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "workload.toml").write_text(DRIVERS[driver])
    variant = f"kafka://{kafka.address} --running --command-config {kafka.files.properties()}"
    arguments = ["run", variant, "--workload", str(tmp_path / "workload.toml"), "--rounds", "1"]
    result = CliRunner().invoke(
        bench_app, [*arguments, "--out", str(tmp_path / "r.json"), "--no-system-calls"]
    )
    assert result.exit_code == 0, result.output
    [measured] = load_result(tmp_path / "r.json").measured
    assert (measured.errors, measured.error) == (0, None)
    assert measured.requests > 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            None,
            "within 2 s. Name the broker listener of a node that runs, not its controller listener; --command-config",
        ),
        (
            {"security_protocol": "SSL", "sasl_mechanism": None, "sasl_jaas_config": None},
            "Its listener may want a login",
        ),
        (
            {"sasl_jaas_config": f'{MODULE} required username="admin" password="wrong";'},
            "login of 'admin' by SCRAM-SHA-256: the server refuses: Authentication failed",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": None, "sasl_username": "a", "sasl_password": "b"},
            "login of 'a' by PLAIN: the server takes SCRAM-SHA-",
        ),
        (
            {"ssl_truststore_location": None, "ssl_truststore_type": None},
            "the server's certificate isn't accepted",
        ),
    ],
)
def test_a_login_that_kafka_refuses_is_told(
    changed: dict[str, str | None] | None, told: str, kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (
        [] if changed is None else ["--command-config", kafka.files.properties("other.properties", **changed)]
    )
    assert run_app(["cluster", "status", "--bootstrap", kafka.address, *given]) == 1
    err = capsys.readouterr().err
    assert kafka.address in err
    assert told in err


def test_tls_to_a_plain_listener_of_kafka_is_named(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    plain = f"127.0.0.1:{kafka.port - 2}"
    config = kafka.files.properties()
    assert run_app(["cluster", "status", "--bootstrap", plain, "--command-config", config]) == 1
    assert f"{plain}: the server closed the connection in the TLS handshake" in capsys.readouterr().err


def test_the_right_of_a_user_counts(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    escaped = password_of(ALICE).replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'{MODULE} required username="{ALICE}" password="{escaped}";'
    config = kafka.files.properties("alice.properties", sasl_jaas_config=jaas)
    run_app(["cluster", "status", "--json", "--bootstrap", kafka.address, "--command-config", config])
    told = json.loads(capsys.readouterr().out)
    assert told["quorum"] is None
