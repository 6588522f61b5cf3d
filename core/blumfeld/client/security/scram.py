"""The client's half of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and the forms that both sides share. Pure.

Names and passwords are UTF-8 without SASLprep, as in Kafka. Channel binding is not offered. The server's half is the
plug-in ``security``'s.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

from blumfeld.client.security.refusals import LoginRefused, Malformed

ITERATIONS_MIN = 4_096
"""The fewest iterations that a credential may have (Kafka's ``ScramMechanism``)."""
NONCE_BYTES = 24
TOKEN_AUTH = "tokenauth"
"""The extension by which a client logs in with a delegation token (KIP-48)."""
NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ATTRIBUTES_MAX = 32
_MESSAGE_BYTES_MAX = 65_536
"""A longer message is none: its base64 alone would hold the loop for longer than a whole login may."""
_PLAIN_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


class ScramMechanism(NamedTuple):
    """One of the two mechanisms."""

    name: str
    hash_name: str
    number: int
    """Its number in AlterUserScramCredentials and in the metadata's records."""
    size: int
    """Bytes of its hash."""

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Returns HMAC(key, data)."""
        return hmac.digest(key, data, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        """Returns H(data)."""
        return hashlib.new(self.hash_name, data).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Returns Hi(password, salt, iterations). It takes milliseconds: call it off the loop."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256", 1, 32)
SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512", 2, 64)
MECHANISMS = {each.name: each for each in (SHA_256, SHA_512)}
BY_NUMBER = {each.number: each for each in (SHA_256, SHA_512)}


def nonce_of(secret: bytes) -> str:
    """Returns the nonce of :data:`NONCE_BYTES` that nobody can guess."""
    return base64.b64encode(secret).decode()


def quoted(name: str) -> str:
    """Returns a user name in the form that it has in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unquoted(name: str) -> str:
    """Returns the user name of its form in a message.

    :raises Malformed: "=" stands for itself
    """
    plain = name.replace("=2C", ",")
    if "=" in plain.replace("=3D", ""):
        raise Malformed("a user name has an = that is neither =2C nor =3D")
    return plain.replace("=3D", "=")


class Challenge(NamedTuple):
    """The server's first message."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


def read_challenge(message: bytes, client_nonce: str) -> Challenge:
    """Returns the server's first message, which a client was sent.

    :raises Malformed: it is none, its nonce doesn't continue the client's, or its iterations are out of bounds
    """
    text = text_of(message)
    attributes = attributes_of(text)
    if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
        raise Malformed("the server's first message has no nonce, salt and iterations in this order")
    nonce, salt, iterations = (value for _, value in attributes[:3])
    if not nonce.startswith(client_nonce) or nonce == client_nonce or NONCE.fullmatch(nonce) is None:
        raise Malformed("the server's nonce doesn't continue ours")
    # A server may not make this node compute for hours, nor get a proof that is quickly guessed.
    count = int(iterations) if re.fullmatch("[0-9]{1,7}", iterations) else 0
    if not ITERATIONS_MIN <= count <= 1_000_000:
        raise Malformed(
            f"the server wants {iterations[:20]} iterations; allowed: {ITERATIONS_MIN} to 1000000"
        )
    return Challenge(text, nonce, from_base64(salt), count)


class ScramClient:
    """The client's side of one exchange: :meth:`first`, :meth:`read`, :meth:`proof`, :meth:`verify`, in this order."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, nonce: str, extensions: dict[str, str] | None = None
    ) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._bare = f"n={quoted(user)},r={nonce}{more}"
        self._signature = b""

    def first(self) -> bytes:
        """Returns the first message."""
        return f"n,,{self._bare}".encode()

    def read(self, challenge: bytes) -> Challenge:
        """Returns the server's challenge.

        :raises Malformed: the challenge is none
        """
        return read_challenge(challenge, self._nonce)

    def proof(self, challenge: Challenge, salted: bytes) -> bytes:
        """Returns the final message.

        :param salted: ``ScramMechanism.salted_password`` with the challenge's salt and iterations
        """
        mechanism = self._mechanism
        without_proof = f"c=biws,r={challenge.nonce}"
        signed = f"{self._bare},{challenge.text},{without_proof}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Check the server's last message.

        :raises LoginRefused: the server refuses, or doesn't know this user's credential
        """
        text = text_of(message)
        if text.startswith("e="):
            raise LoginRefused(f"the server refuses: {text[2:200]}")
        if not text.startswith("v=") or not hmac.compare_digest(
            from_base64(text[2:].split(",", 1)[0]), self._signature
        ):
            raise LoginRefused("the server couldn't prove that it knows the credential of this user")


def xor(left: bytes, right: bytes) -> bytes:
    """Returns the exclusive or of two values of one length."""
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))


def text_of(message: bytes) -> str:
    """Returns the text of a message.

    :raises Malformed: it is too long, isn't UTF-8, or has a NUL
    """
    if len(message) > _MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of SCRAM has more than {_MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Malformed("a message of SCRAM is not UTF-8") from None
    if "\0" in text:
        raise Malformed("a message of SCRAM has a NUL")
    return text


def attributes_of(text: str) -> list[tuple[str, str]]:
    """Returns the attributes ``name=value`` in their order. Kafka's extensions have names of several letters."""
    fields = text.split(",", _ATTRIBUTES_MAX)
    if len(fields) > _ATTRIBUTES_MAX:
        raise Malformed(f"a message of SCRAM has more than {_ATTRIBUTES_MAX} attributes")
    attributes = []
    for each in fields:
        name, equals, value = each.partition("=")
        if not equals or not name.isascii() or not name.isalpha():
            raise Malformed("a message of SCRAM has an attribute without a name")
        if name == "m":
            raise Malformed("a message of SCRAM has a mandatory extension, and none is known")
        attributes.append((name, value))
    return attributes


def from_base64(text: str) -> bytes:
    """Returns the bytes of an attribute.

    :raises Malformed: it isn't base64
    """
    data = text.encode()
    if not data or _PLAIN_BASE64.fullmatch(data) is None:
        raise Malformed("a message of SCRAM has bytes that are not base64")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Malformed("a message of SCRAM has bytes that are not base64") from None
