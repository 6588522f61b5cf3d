"""A client's login by SASL: the requests out, the answers in (KIP-43, KIP-152). Pure: a driver sends and receives.

A login needs no ApiVersions before it: every Kafka since 1.0 has the versions that it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from blumfeld.client.security import scram
from blumfeld.client.security.refusals import LoginRefused
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, *scram.MECHANISMS, OAUTHBEARER)
"""The mechanisms by which a client of this build logs in."""
VERSION = 1
"""The version of both requests of a login."""
BEARER_ERROR_READ = b"\x01"
"""The client's reply to OAUTHBEARER's error: it has read it, and the server ends the exchange (RFC 7628, 3.2.3)."""
_TEXT_CHARS_MAX = 300
"""Characters of a server's text that an error repeats."""
_REASON_CHARS_MAX = 500


class Credentials(msgspec.Struct, frozen=True):
    """What a client logs in by."""

    mechanism: str
    """One of :data:`MECHANISMS`."""
    user: str
    """Empty for OAUTHBEARER: the token names the user."""
    secret: str
    """The password, or the token of OAUTHBEARER."""
    extensions: dict[str, str] = {}
    """SCRAM's extensions: ``tokenauth`` where user and password are a delegation token's (KIP-48)."""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, user={self.user!r}, secret=[hidden])"

    def refused(self, reason: str) -> str:
        """Returns the words for a login that failed, in one line: the reason may have a server's text in it."""
        who = f" of {self.user!r}" if self.user else ""
        told = "".join(char if char.isprintable() else "?" for char in reason[:_REASON_CHARS_MAX])
        return f"login{who} by {self.mechanism}: {told}"


class Salting(msgspec.Struct, frozen=True):
    """Work that takes milliseconds: the salted password of SCRAM. The driver does it where it blocks nobody."""

    mechanism: str
    password: str
    salt: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Salting({self.mechanism}, iterations={self.iterations}, password=[hidden])"

    def salted(self) -> bytes:
        """Returns the salted password. Slow."""
        return scram.MECHANISMS[self.mechanism].salted_password(self.password, self.salt, self.iterations)


Effect = SaslHandshakeRequest | SaslAuthenticateRequest | Salting
Steps = Generator[Effect, Any, int]
"""Yields requests in version :data:`VERSION`, and wants the answer to each sent back. Yields :class:`Salting`, and
wants its bytes. Returns the ms after which the server wants a new login (KIP-368); 0 for never."""


def login_steps(credentials: Credentials, new_nonce: Callable[[], str]) -> Steps:
    """Log in on one connection.

    :param new_nonce: returns ``scram.nonce_of`` bytes that nobody can guess
    :raises LoginRefused: (from the generator) the server refuses, or doesn't know this user's credential
    """
    answer = yield SaslHandshakeRequest(mechanism=credentials.mechanism)
    _check_handshake(answer)
    if credentials.mechanism == PLAIN:
        return (yield from _step(plain_token(credentials.user, credentials.secret))).session_lifetime_ms
    if credentials.mechanism == OAUTHBEARER:
        return (yield from _bearer(credentials.secret))
    return (yield from _scram(credentials, new_nonce()))


def _check_handshake(answer: SaslHandshakeResponse) -> None:
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginRefused(f"the server takes {', '.join(answer.mechanisms) or 'no mechanism'} only")
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginRefused("the server's listener has no SASL")
    if answer.error_code:
        raise LoginRefused(f"the server answers with error {answer.error_code} to SaslHandshake")


def _scram(credentials: Credentials, nonce: str) -> Steps:
    mechanism = scram.MECHANISMS[credentials.mechanism]
    exchange = scram.ScramClient(mechanism, credentials.user, nonce, credentials.extensions)
    challenge = exchange.read(bytes((yield from _step(exchange.first())).auth_bytes))
    salted = yield Salting(mechanism.name, credentials.secret, challenge.salt, challenge.iterations)
    last = yield from _step(exchange.proof(challenge, salted))
    exchange.verify(bytes(last.auth_bytes))
    return last.session_lifetime_ms


def _bearer(token: str) -> Steps:
    answer = yield from _step(bearer_message(token))
    if answer.auth_bytes:
        error = bytes(answer.auth_bytes).decode(errors="replace")[:_TEXT_CHARS_MAX]
        yield SaslAuthenticateRequest(auth_bytes=BEARER_ERROR_READ)  # the server fails the login now
        raise LoginRefused(f"the server doesn't take the token: {error}")
    return answer.session_lifetime_ms


def _step(token: bytes) -> Generator[Effect, Any, SaslAuthenticateResponse]:
    answer: SaslAuthenticateResponse = yield SaslAuthenticateRequest(auth_bytes=token)
    if answer.error_code:
        text = answer.error_message or f"error {answer.error_code}"
        raise LoginRefused(f"the server refuses: {text[:_TEXT_CHARS_MAX]}")
    return answer


def plain_token(user: str, password: str) -> bytes:
    """Returns the client's token of PLAIN (RFC 4616).

    :raises ValueError: user or password is empty, or has a NUL
    """
    for what, value in (("user name", user), ("password", password)):
        if not value or "\0" in value:
            raise ValueError(f"a {what} of PLAIN is not empty and has no NUL")
    return f"\0{user}\0{password}".encode()


def bearer_message(token: str, extensions: dict[str, str] | None = None) -> bytes:
    """Returns the client's first message of OAUTHBEARER (RFC 7628)."""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    return ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01").encode()
