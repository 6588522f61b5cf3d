"""Errors of TLS in words that a person understands, and the protocol that a stranger's first bytes belong to. Pure."""

from __future__ import annotations

import ssl

HANDSHAKE = 0x16
HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN")
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, and ssl.client.auth is required",
    "NO_SHARED_CIPHER": "the client has no cipher suite in common with this listener",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of TLS that ssl.enabled.protocols names",
    "WRONG_VERSION_NUMBER": "the other side speaks no TLS here",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client takes no signature of this listener's key",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side doesn't trust this node's certificate: its truststore lacks the signer",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side doesn't take this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side doesn't take this node's certificate, or not for this host",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that this node's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the other side says that this node's certificate is revoked",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other node demands a certificate, and this one showed none",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side found no version or cipher suite in common",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side speaks no version of TLS that ssl.enabled.protocols names",
}
"""OpenSSL's reason → its words. Others are shown as OpenSSL has them."""


UNSIGNED = frozenset((18, 19, 20, 21))
"""OpenSSL's codes of a certificate whose signer isn't trusted: signed by itself, by a signer that only the other side
sent, by one that nobody sent."""


def in_words(error: ssl.SSLError) -> str:
    """Returns the reason of a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unsigned = "no signer in this node's truststore has signed it, " * (error.verify_code in UNSIGNED)
        return f"the other side's certificate isn't accepted: {unsigned}{error.verify_message}"
    reason = error.reason or ""
    return REASONS.get(reason) or reason.replace("_", " ").lower() or "the handshake was broken off"


def not_tls(first: bytes) -> str | None:
    """Returns the words for a client that begins with something else than TLS; ``None`` if its bytes may be TLS."""
    if first[:1] == bytes((HANDSHAKE,)):
        return None
    if first[:4] in HTTP:
        return "the client speaks HTTP"
    return "the client speaks plain text: its security.protocol must be SSL or SASL_SSL here"
