"""Passwords of PLAIN as they lie in a file: hashed by scrypt, in the form ``$scrypt$ln=14,r=8,p=1$SALT$HASH``. Pure.

Each function takes tens of milliseconds and 16 MiB: it is called off the loop.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

import msgspec

LOG2_N, BLOCK, PARALLEL = 14, 8, 1
SALT_BYTES, HASH_BYTES = 16, 32
_MEMORY_BYTES_MAX = 256 << 20
_FORM = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")


class PasswordHash(msgspec.Struct, frozen=True):
    """A hashed password."""

    log2_n: int
    block: int
    parallel: int
    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "PasswordHash([hidden])"

    def __str__(self) -> str:
        """Returns the form that lies in a file."""
        salt, digest = _base64(self.salt), _base64(self.digest)
        return f"$scrypt$ln={self.log2_n},r={self.block},p={self.parallel}${salt}${digest}"


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Returns the hash of a password. Slow."""
    empty = PasswordHash(LOG2_N, BLOCK, PARALLEL, salt, bytes(HASH_BYTES))
    return msgspec.structs.replace(empty, digest=_digest(empty, password))


def is_password(hashed: PasswordHash, password: str) -> bool:
    """Whether the password is the one that was hashed. Slow, and as slow for a wrong one."""
    return hmac.compare_digest(_digest(hashed, password), hashed.digest)


def read_hash(text: str) -> PasswordHash:
    """Returns the hash in the form of a file.

    :raises ValueError: it has another form, or would take more than 256 MiB or 16 rounds. The text isn't repeated
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("no hash of the form $scrypt$ln=14,r=8,p=1$SALT$HASH")
    log2_n, block, parallel = int(match[1]), int(match[2]), int(match[3])
    if (
        not 10 <= log2_n <= 20
        or not 1 <= parallel <= 16
        or not 0 < block << (log2_n + 7) <= _MEMORY_BYTES_MAX
    ):
        raise ValueError("a hash with ln, r or p out of bounds: use ln=14,r=8,p=1")
    salt, digest = _from_base64(match[4]), _from_base64(match[5])
    if len(salt) < 8 or not 16 <= len(digest) <= 64:
        raise ValueError("a hash with a short salt or digest")
    return PasswordHash(log2_n, block, parallel, salt, digest)


def _digest(hashed: PasswordHash, password: str) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=hashed.salt,
        n=1 << hashed.log2_n,
        r=hashed.block,
        p=hashed.parallel,
        maxmem=_MEMORY_BYTES_MAX * 2,
        dklen=len(hashed.digest),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise ValueError("a hash with bytes that are not base64") from None
