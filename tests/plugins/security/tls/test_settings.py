"""Settings are Kafka's keys, the listener's own before the others; what can't be served is refused by its key."""

from __future__ import annotations

import pytest

from blumfeld.client.security.stores import TlsConfigError
from blumfeld.config.values import BrokerConfig
from blumfeld_security.tls.settings import TlsSettings, settings_of

PEM = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
SERVED = {**PEM, "ssl.keystore.location": "/k.pem", "ssl.truststore.location": "/t.pem"}


def settings(given: dict[str, str], *, with_sasl: bool = False, dials: bool = False) -> TlsSettings:
    """The settings of the listener EXTERNAL."""
    return settings_of(BrokerConfig(given), "EXTERNAL", with_sasl=with_sasl, dials=dials)


def test_a_listeners_own_keys_count_before_the_others() -> None:
    own = {
        "listener.name.external.ssl.keystore.location": "/own.p12",
        "listener.name.external.ssl.keystore.type": "pkcs12",
        "listener.name.external.ssl.client.auth": "required",
        "listener.name.external.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.other.ssl.client.auth": "requested",
    }
    made = settings(SERVED | own)
    assert (made.keystore.kind, made.keystore.location) == ("PKCS12", "/own.p12")
    assert made.truststore.location == "/t.pem"
    assert made.client_auth == "required"
    assert made.versions == ("TLSv1.3",)


def test_without_own_keys_a_listener_has_those_of_all() -> None:
    made = settings(SERVED)
    assert made.keystore.location == "/k.pem"
    assert (made.client_auth, made.versions, made.ciphers) == ("none", ("TLSv1.2", "TLSv1.3"), None)
    assert made.checks_host
    assert made.rules == "DEFAULT"


def test_beside_sasl_only_the_listeners_own_key_asks_for_certificates() -> None:
    """As in Kafka."""
    assert settings(SERVED | {"ssl.client.auth": "required"}, with_sasl=True).client_auth == "none"
    own = {"listener.name.external.ssl.client.auth": "required"}
    assert settings(SERVED | own, with_sasl=True).client_auth == "required"


def test_a_connection_to_another_node_needs_no_store() -> None:
    made = settings({"ssl.endpoint.identification.algorithm": ""}, dials=True)
    assert not made.keystore.is_set
    assert not made.truststore.is_set
    assert not made.checks_host


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({}, "ssl.keystore.location", "nothing, and the listener EXTERNAL speaks TLS"),
        ({"ssl.keystore.location": "/k.jks"}, "ssl.keystore.type", "keytool -importkeystore"),
        (SERVED | {"ssl.truststore.type": "JKS"}, "ssl.truststore.type", "-deststoretype PKCS12"),
        (
            SERVED | {"listener.name.external.ssl.keystore.type": "JKS"},
            "listener.name.external.ssl.keystore.type",
            "JKS",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k", "ssl.client.auth": "required"},
            "ssl.truststore.location",
            "ssl.client.auth is required",
        ),
        (PEM | {"ssl.keystore.key": "k"}, "ssl.keystore.certificate.chain", "both"),
        (PEM | {"ssl.keystore.certificate.chain": "c"}, "ssl.keystore.key", "both"),
        (
            SERVED | {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            "ssl.keystore.location",
            "one of both",
        ),
        (SERVED | {"ssl.truststore.certificates": "c"}, "ssl.truststore.certificates", "one of both"),
        (SERVED | {"ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "ssl.enabled.protocols", "TLSv1.1"),
        (SERVED | {"ssl.protocol": "SSLv3"}, "ssl.protocol", "SSLv3"),
        (SERVED | {"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5"}, "ssl.cipher.suites", "NULL_MD5"),
        (
            SERVED | {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "ssl.cipher.suites",
            "name all or none",
        ),
        (
            SERVED
            | {
                "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            "ssl.cipher.suites",
            "suites of TLSv1.2 alone",
        ),
        (
            SERVED | {"ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm",
            "ldaps",
        ),
        (SERVED | {"ssl.principal.mapping.rules": "x"}, "ssl.principal.mapping.rules", "no rule"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_key(given: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(TlsConfigError) as refused:
        settings(given)
    assert refused.value.key == key
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("suites", "versions", "ciphers"),
    [
        (
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_CBC_SHA",
            ("TLSv1.2",),
            "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA",
        ),
        (
            "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256",
            ("TLSv1.3",),
            None,
        ),
    ],
)
def test_suites_decide_which_versions_are_left(
    suites: str, versions: tuple[str, ...], ciphers: str | None
) -> None:
    made = settings(SERVED | {"ssl.cipher.suites": suites})
    assert (made.versions, made.ciphers) == (versions, ciphers)


def test_no_secret_is_shown() -> None:
    secret = {
        **PEM,
        "ssl.keystore.key": "SESAME-key",
        "ssl.keystore.certificate.chain": "SESAME-chain",
        "ssl.key.password": "SESAME-password",
    }
    assert "SESAME" not in repr(settings(secret))
    assert "SESAME" not in repr(settings(secret).keystore)
