"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) with Kafka's extension ``tokenauth``: both sides, pure.

Names and passwords are UTF-8 without SASLprep, as in Kafka. Channel binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

import msgspec

from blumfeld_security.exchanges.refusals import LoginRefused, Malformed

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""The iterations that a credential may have (Kafka's ``ScramMechanism``)."""
NONCE_BYTES = 24
TOKEN_AUTH = "tokenauth"
"""The extension by which a client logs in with a delegation token (KIP-48)."""
_ATTRIBUTES_MAX = 32
_MESSAGE_BYTES_MAX = 65_536
"""A longer message is none: its base64 alone would hold the loop for longer than a whole login may."""
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
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


class Credential(msgspec.Struct, frozen=True):
    """What a server keeps of a password. It proves a login; no login can be made from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations}, keys=[hidden])"


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Returns the credential of a salted password."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return Credential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


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


class ClientFirst(NamedTuple):
    """The client's first message."""

    header: str
    """GS2 header: binding flag and authorization id."""
    bare: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]

    @property
    def token_auth(self) -> bool:
        """Whether the user is the id of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"


def read_client_first(message: bytes) -> ClientFirst:
    """:raises Malformed: it is no first message, or asks for channel binding"""
    text = _text(message)
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[0] not in ("n", "y"):
        raise Malformed("the first message doesn't begin with a GS2 header without channel binding")
    flag, authorization, bare = parts
    if authorization and not authorization.startswith("a="):
        raise Malformed("the GS2 header has no authorization id where one belongs")
    attributes = _attributes(bare)
    if [name for name, _ in attributes[:2]] != ["n", "r"]:
        raise Malformed("the first message has no user name and nonce in this order")
    user, nonce = unquoted(attributes[0][1]), attributes[1][1]
    if not user or _NONCE.fullmatch(nonce) is None:
        raise Malformed("the first message has an empty user name, or no legal nonce")
    acts_as = unquoted(authorization[2:])
    return ClientFirst(f"{flag},{authorization},", bare, acts_as, user, nonce, dict(attributes[2:]))


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
    text = _text(message)
    attributes = _attributes(text)
    if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
        raise Malformed("the server's first message has no nonce, salt and iterations in this order")
    nonce, salt, iterations = (value for _, value in attributes[:3])
    if not nonce.startswith(client_nonce) or nonce == client_nonce or _NONCE.fullmatch(nonce) is None:
        raise Malformed("the server's nonce doesn't continue ours")
    # A server may not make this node compute for hours, nor get a proof that is quickly guessed.
    count = int(iterations) if re.fullmatch("[0-9]{1,7}", iterations) else 0
    if not ITERATIONS_MIN <= count <= 1_000_000:
        raise Malformed(
            f"the server wants {iterations[:20]} iterations; allowed: {ITERATIONS_MIN} to 1000000"
        )
    return Challenge(text, nonce, _from_base64(salt), count)


class ClientFinal(NamedTuple):
    """The client's final message."""

    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_final(message: bytes) -> ClientFinal:
    """:raises Malformed: it is no final message"""
    text = _text(message)
    attributes = _attributes(text)
    names = [name for name, _ in attributes]
    if names[:2] != ["c", "r"] or names[-1:] != ["p"] or len(names) < 3:
        raise Malformed("the final message has no channel binding, nonce and proof in this order")
    without_proof = text[: text.rindex(",p=")]
    return ClientFinal(
        without_proof, _from_base64(attributes[0][1]), attributes[1][1], _from_base64(attributes[-1][1])
    )


class ScramServer:
    """The server's side of one exchange: :meth:`first`, :meth:`challenge`, :meth:`final`, in this order."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.mechanism = mechanism
        self._first: ClientFirst | None = None
        self._challenge = ""
        self._nonce = ""
        self._credential: Credential | None = None

    def first(self, message: bytes) -> ClientFirst:
        """Take the client's first message.

        :raises LoginRefused: it is malformed, or its user wants to act for another one
        """
        first = self._first = read_client_first(message)
        if first.authorization_id not in ("", first.user):
            told = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise LoginRefused(f"user {first.user!r} asked to act as {first.authorization_id!r}", told)
        return first

    def challenge(self, credential: Credential, nonce: str) -> bytes:
        """Returns the answer to the first message.

        :param credential: the user's, or a made up one where there is no such user
        :param nonce: printable, without a comma, and never used before
        """
        assert self._first is not None
        self._credential = credential
        self._nonce = self._first.nonce + nonce
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._challenge.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof; returns the last message, which proves to the client that we know its credential.

        :raises LoginRefused: the proof is wrong, or the message is malformed or of another exchange
        """
        assert self._first is not None
        assert self._credential is not None
        final = read_client_final(message)
        if final.binding != self._first.header.encode():
            raise Malformed("the channel binding of the final message is not that of the first one")
        # librdkafka before 2.6.1 puts its own nonce in front once more. The proof is over what the client sent.
        if not final.nonce.endswith(self._nonce):
            raise Malformed("the nonce of the final message is not the server's")
        mechanism, credential = self.mechanism, self._credential
        signed = f"{self._first.bare},{self._challenge},{final.without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(final.proof) != mechanism.size:
            raise Malformed(f"the proof has {len(final.proof)} bytes in place of {mechanism.size}")
        stored_key = mechanism.hash(_xor(signature, final.proof))
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise LoginRefused("the proof is wrong")
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


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
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, message: bytes) -> None:
        """Check the server's last message.

        :raises LoginRefused: the server refuses, or doesn't know this user's credential
        """
        text = _text(message)
        if text.startswith("e="):
            raise LoginRefused(f"the server refuses: {text[2:200]}")
        if not text.startswith("v=") or not hmac.compare_digest(
            _from_base64(text[2:].split(",", 1)[0]), self._signature
        ):
            raise LoginRefused("the server couldn't prove that it knows the credential of this user")


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of SCRAM has more than {_MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Malformed("a message of SCRAM is not UTF-8") from None
    if "\0" in text:
        raise Malformed("a message of SCRAM has a NUL")
    return text


def _attributes(text: str) -> list[tuple[str, str]]:
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


def _from_base64(text: str) -> bytes:
    data = text.encode()
    if not data or _PLAIN_BASE64.fullmatch(data) is None:
        raise Malformed("a message of SCRAM has bytes that are not base64")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Malformed("a message of SCRAM has bytes that are not base64") from None
