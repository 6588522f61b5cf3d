"""Logins by this build's own client at a real broker: mutual TLS, PKCS12, bearer tokens, delegation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import NotSecuredError
from blumfeld.client.security.command_config import client_security
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from campaigns.certificates import private
from tests.secured import AUTHORITY, Secured

CLIENT = AUTHORITY.leaf(("CN", "alice"))


def asks(broker: EmbeddedBroker, config: str) -> int:
    """Log in, and return the number of brokers that Metadata shows."""
    security = client_security(config, RealFiles(), print)
    with BlockingConnection(broker.host, broker.port, "test", 20.0, security=security) as connection:
        return len(connection.ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers)


NO_SASL = {"security_protocol": "SSL", "sasl_mechanism": None, "sasl_jaas_config": None}


def mutual(files: Secured) -> dict[str, Any]:
    return files.config(
        **{
            "listener.security.protocol.map": "CLIENTS:SSL,CONTROLLER:PLAINTEXT",
            "ssl.client.auth": "required",
        }
    )


def test_a_certificate_logs_in_by_itself(tmp_path: Path) -> None:
    files = Secured(tmp_path)
    pem = private(tmp_path / "alice.pem", CLIENT.pem())
    p12 = private(tmp_path / "alice.p12", CLIENT.p12("pw"))
    key = private(tmp_path / "alice.key", CLIENT.key_pem("pw"))
    (tmp_path / "alice.crt").write_bytes(CLIENT.certificate_pem)
    manifest = {**files.manifest(), "security": {"plugin": "security"}}
    config = {
        key: value for key, value in mutual(files).items() if not key.startswith(("sasl.", "authorizer."))
    }
    with EmbeddedBroker(manifest=manifest, config=config) as broker:
        shown: list[dict[str, str]] = [
            {"ssl_keystore_location": pem, "ssl_keystore_type": "PEM"},
            {"ssl_keystore_location": p12, "ssl_keystore_password": "pw"},
            {
                "ssl_key_location": key,
                "ssl_certificate_location": f"{tmp_path}/alice.crt",
                "ssl_key_password": "pw",
            },
        ]
        for nth, keystore in enumerate(shown):
            assert asks(broker, files.properties(f"{nth}.properties", **NO_SASL, **keystore)) == 1
        with pytest.raises(NotSecuredError, match="it demands a certificate, and this client showed none"):
            asks(broker, files.properties("none.properties", **NO_SASL))


def test_a_certificate_for_another_host_is_refused_unless_that_is_asked_for(tmp_path: Path) -> None:
    files = Secured(tmp_path)
    private(Path(files.keystore), AUTHORITY.leaf(hosts=("elsewhere.example",)).pem())
    login = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": None, **files.plain_login()}
    config = files.config(**{"ssl.endpoint.identification.algorithm": ""})
    with EmbeddedBroker(manifest=files.manifest(), config=config) as broker:
        with pytest.raises(NotSecuredError, match="certificate isn't accepted: IP address mismatch"):
            asks(broker, files.properties(**login))
        unchecked = {**login, "ssl_endpoint_identification_algorithm": ""}
        assert asks(broker, files.properties("unchecked.properties", **unchecked)) == 1


def test_a_bearer_token_logs_in_from_its_file(tmp_path: Path) -> None:
    pytest.importorskip("joserfc")
    from tests.plugins.security.sasl.test_bearer_tokens import CLAIMS, JWKS, RSA, STRANGER, signed

    files, token = Secured(tmp_path), tmp_path / "token"
    (tmp_path / "keys.json").write_bytes(JWKS)
    more = {
        "sasl.enabled.mechanisms": ["OAUTHBEARER", "PLAIN"],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys.json",
        "sasl.oauthbearer.expected.audience": ["kafka"],
    }
    config = files.properties(
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=None,
        sasl_oauthbearer_token_endpoint_url=f"file://{token}",
    )
    now_s = int(time.time())
    claims = {**CLAIMS, "iat": now_s, "exp": now_s + 100}
    with EmbeddedBroker(manifest=files.manifest(), config=files.config(**more)) as broker:
        token.write_text(signed(RSA, "RS256", claims))
        assert asks(broker, config) == 1
        token.write_text(signed(STRANGER, "RS256", claims))
        with pytest.raises(
            NotSecuredError, match=r"OAUTHBEARER: the server doesn't take the token: .*invalid"
        ):
            asks(broker, config)
