"""Digests of what a build is made of. Pure."""

from __future__ import annotations

try:
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:  # it has another name from Python 3.12 on
    from hashlib import sha256
# hashlib loads OpenSSL: 6 ms, which a start without TLS doesn't have.


def digest(data: bytes) -> str:
    """Returns ``sha256:`` and the hexadecimal digits."""
    return f"sha256:{sha256(data).hexdigest()}"
