"""The server's half of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) with Kafka's extension ``tokenauth``. Pure.

The client's half, and the forms that both sides share, are :mod:`blumfeld.client.security.scram`'s.
"""

from __future__ import annotations

import base64
import hmac
from typing import NamedTuple

import msgspec

from blumfeld.client.security.refusals import LoginRefused, Malformed
from blumfeld.client.security.scram import (
    NONCE,
    TOKEN_AUTH,
    ScramMechanism,
    attributes_of,
    from_base64,
    text_of,
    unquoted,
    xor,
)

ITERATIONS_MAX = 16_384
"""The most iterations that a credential may have (Kafka's ``ScramMechanism``)."""


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
    text = text_of(message)
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[0] not in ("n", "y"):
        raise Malformed("the first message doesn't begin with a GS2 header without channel binding")
    flag, authorization, bare = parts
    if authorization and not authorization.startswith("a="):
        raise Malformed("the GS2 header has no authorization id where one belongs")
    attributes = attributes_of(bare)
    if [name for name, _ in attributes[:2]] != ["n", "r"]:
        raise Malformed("the first message has no user name and nonce in this order")
    user, nonce = unquoted(attributes[0][1]), attributes[1][1]
    if not user or NONCE.fullmatch(nonce) is None:
        raise Malformed("the first message has an empty user name, or no legal nonce")
    acts_as = unquoted(authorization[2:])
    return ClientFirst(f"{flag},{authorization},", bare, acts_as, user, nonce, dict(attributes[2:]))


class ClientFinal(NamedTuple):
    """The client's final message."""

    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_final(message: bytes) -> ClientFinal:
    """:raises Malformed: it is no final message"""
    text = text_of(message)
    attributes = attributes_of(text)
    names = [name for name, _ in attributes]
    if names[:2] != ["c", "r"] or names[-1:] != ["p"] or len(names) < 3:
        raise Malformed("the final message has no channel binding, nonce and proof in this order")
    without_proof = text[: text.rindex(",p=")]
    return ClientFinal(
        without_proof, from_base64(attributes[0][1]), attributes[1][1], from_base64(attributes[-1][1])
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
        stored_key = mechanism.hash(xor(signature, final.proof))
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise LoginRefused("the proof is wrong")
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))
