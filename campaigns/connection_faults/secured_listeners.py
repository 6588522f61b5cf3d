"""A broker's listeners with TLS and SASL, and what their clients need."""

from __future__ import annotations

import functools
import hashlib
import json
import ssl
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from blumfeld.client.security.scram import MECHANISMS
from blumfeld.testing.process import LOOPBACK, free_port
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from blumfeld_security.exchanges.passwords import PasswordHash
from campaigns.certificates import private
from campaigns.raw_connection import RawConnection
from campaigns.secured.identities import AUDIENCE, ISSUER, PASSWORD, USER, make_certificates

NAMES = ("TLS", "CLEAR", "MUTUAL", "BOTH")
PORTS = dict(zip(NAMES, count(free_port(len(NAMES))), strict=False))
LOGIN_MS_MAX = 8_000
SALT, ITERATIONS = b"a salt of twenty-six bytes", 4_096
"""Those of the user's credentials of SCRAM."""
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def folder() -> Path:
    """Certificates, users and an issuer's keys, until this process ends."""
    made = tempfile.TemporaryDirectory(prefix="blumfeld-strangers-")
    _KEPT.append(made)
    path = Path(made.name)
    make_certificates(path)
    salt = b"sixteen bytes..."
    digest = hashlib.scrypt(PASSWORD.encode(), salt=salt, n=1 << 10, r=8, p=1, dklen=32)
    private(path / "users.toml", f"[users]\n{USER} = '{PasswordHash(10, 8, 1, salt, digest)}'\n".encode())
    public = issuer_key().as_dict(private=False, kid="one")
    (path / "keys.json").write_text(json.dumps({"keys": [public]}))
    return path


@functools.cache
def issuer_key() -> Any:
    """The issuer's key: only right tokens of a wrong content are signed by it."""
    from joserfc.jwk import RSAKey

    return RSAKey.generate_key(2048, {"kid": "one"})


def add_scram_credentials(address: str) -> None:
    """Give the user credentials of SCRAM, one of each mechanism.

    :raises RuntimeError: the broker at this address refused them
    """
    wanted = [
        ScramCredentialUpsertion(
            name=USER,
            mechanism=mechanism.number,
            iterations=ITERATIONS,
            salt=SALT,
            salted_password=mechanism.salted_password(PASSWORD, SALT, ITERATIONS),
        )
        for mechanism in MECHANISMS.values()
    ]
    request = AlterUserScramCredentialsRequest(upsertions=wanted)
    with RawConnection(address) as connection:
        answer = connection.ask(request, 0, AlterUserScramCredentialsResponse)
    if not answer.results or any(result.error_code for result in answer.results):
        raise RuntimeError(f"the credentials of SCRAM were refused: {answer}")


def settings() -> tuple[str, ...]:
    """Listeners with TLS, SASL, a client's certificate, and SASL in TLS, beside the plain one of the load."""
    at = folder()
    listeners = "".join(
        f',{{name="{name}",kind="broker",bind="{LOOPBACK}:{port}"}}' for name, port in PORTS.items()
    )
    mechanisms = json.dumps(["PLAIN", *MECHANISMS, "OAUTHBEARER"])
    return (
        f'network.listeners=[{{name="PLAINTEXT",kind="broker",bind="{LOOPBACK}:0",inter_broker=true}}{listeners},'
        f'{{name="CONTROLLER",kind="controller",bind="{LOOPBACK}:0"}}]',
        "security.plugin=security",
        f'security.options.plain_users="{at / "users.toml"}"',
        "security.options.failed_logins_max=0",
        f"security.options.login_ms_max={LOGIN_MS_MAX}",
        'config."listener.security.protocol.map"='
        '"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,CLEAR:SASL_PLAINTEXT,MUTUAL:SSL,BOTH:SASL_SSL"',
        'config."ssl.keystore.type"="PEM"',
        f'config."ssl.keystore.location"="{at / "node.both.pem"}"',
        'config."ssl.truststore.type"="PEM"',
        f'config."ssl.truststore.location"="{at / "signer.pem"}"',
        'config."listener.name.mutual.ssl.client.auth"="required"',
        f'config."sasl.enabled.mechanisms"={mechanisms}',
        f'config."sasl.oauthbearer.jwks.endpoint.url"="file://{at / "keys.json"}"',
        f'config."sasl.oauthbearer.expected.issuer"="{ISSUER}"',
        f'config."sasl.oauthbearer.expected.audience"=["{AUDIENCE}"]',
        'config."delegation.token.secret.key"="a secret of the cluster"',
        'config."connection.failed.authentication.delay.ms"=20',
        'config."socket.listen.backlog.size"=4096',
    )


def client_context() -> ssl.SSLContext:
    """A client that trusts anyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
