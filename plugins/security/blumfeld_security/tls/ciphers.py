"""Names of cipher suites: Java has those of the standard, OpenSSL its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence

TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Python's ssl has these on or off together, by the version."""
KEY_EXCHANGES = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA")
KINDS = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
}
"""The standard's name of a cipher → OpenSSL's."""


class SuiteError(Exception):
    """A list of suites can't be served."""


def openssl_names(suites: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Returns the versions of TLS that the suites allow, and OpenSSL's names of those before TLS 1.3.

    :raises SuiteError: a suite is unknown, or only some of TLS 1.3's are named
    """
    newer = [suite for suite in suites if suite in TLS_1_3]
    if newer and len(set(newer)) < len(TLS_1_3):
        missing = ", ".join(suite for suite in TLS_1_3 if suite not in newer)
        raise SuiteError(
            f"suites of TLS 1.3 without {missing}: Python can't choose among them; name all or none"
        )
    older = [_openssl_name(suite) for suite in suites if suite not in TLS_1_3]
    versions = ("TLSv1.2",) * bool(older) + ("TLSv1.3",) * bool(newer)
    return versions, ":".join(older) or None


def _openssl_name(suite: str) -> str:
    exchange, _, kind = suite.removeprefix("TLS_").partition("_WITH_")
    if not suite.startswith("TLS_") or exchange not in KEY_EXCHANGES or kind not in KINDS:
        raise SuiteError(f"{suite!r}, which isn't known")
    name = KINDS[kind]
    return name if exchange == "RSA" else f"{exchange.replace('_', '-')}-{name}"
