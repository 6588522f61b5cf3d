"""A login as a stranger would write it: found, named in a manifest, and used by a client that knows nothing of it."""

from __future__ import annotations

import base64
import hmac
import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.examples.stranger import EXAMPLES, Stranger

EXAMPLE = EXAMPLES / "acme_authenticator_totp"
SECRET = b"a secret of alice"
MANIFEST = """
[network]
listeners = [
  { name = "USERS", kind = "broker", bind = "127.0.0.1:0" },
  { name = "PLAINTEXT", kind = "broker", bind = "127.0.0.1:0", inter_broker = true },
  { name = "CONTROLLER", kind = "controller", bind = "127.0.0.1:0" },
]
[security]
plugin = "security"
authenticators = ["totp"]
[security.plugin_options.totp]
secrets = "SECRETS"
[config]
"listener.security.protocol.map" = "USERS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
"sasl.enabled.mechanisms" = ["PLAIN"]
"""


@pytest.fixture
def at_home(stranger: Stranger) -> Stranger:
    """With a file of secrets."""
    secrets = stranger.folder / "codes.toml"
    secrets.touch(mode=0o600)
    secrets.write_text(f'[secrets]\nalice = "{base64.b32encode(SECRET).decode()}"\n')
    stranger.manifest.write_text(MANIFEST.replace("SECRETS", str(secrets)))
    return stranger


def present_code() -> str:
    digest = hmac.digest(SECRET, int(time.time() // 30).to_bytes(8, "big"), "sha1")
    at = digest[-1] & 15
    return f"{(int.from_bytes(digest[at : at + 4], 'big') & (1 << 31) - 1) % 1_000_000:06}"


def logs_in(address: str, code: str) -> bool:
    """Whether a client gets a list of topics."""
    login: dict[str, str | int | float] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": code,
        "log_level": 2,
    }
    try:
        return AdminClient(login).list_topics(timeout=3) is not None
    except KafkaException:
        return False


def test_it_is_found_by_its_entry_point(at_home: Stranger) -> None:
    assert "acme-authenticator-totp 0.1.0" in at_home.plan()


def test_a_client_logs_in_by_the_present_code_and_by_no_other(at_home: Stranger) -> None:
    with at_home.broker() as address:
        code = present_code()
        assert logs_in(address, code)
        assert not logs_in(address, f"{(int(code) + 1) % 1_000_000:06}")


def test_a_file_that_others_may_read_is_refused(at_home: Stranger) -> None:
    (at_home.folder / "codes.toml").chmod(0o644)
    with pytest.raises(AssertionError, match=r"plugin_options\.totp\.secrets.*every user of this machine"):
        at_home.plan()


def test_it_passes_the_contract_kit_as_its_author_would_run_it(at_home: Stranger) -> None:
    at_home.kit(EXAMPLE)
