"""This node's own login at other nodes: PLAIN or SCRAM, with a user and a password from a file.

.. code-block:: toml

    user = "broker"
    password = "…"
"""

from __future__ import annotations

import tomllib
from typing import Any, TypeVar, cast

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Files, Runtime
from blumfeld.spi.secret_files import BadSecretFile, read_secret_file
from blumfeld.spi.security import Dialled
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld.wire.schema import Message
from blumfeld_security.exchanges import plain
from blumfeld_security.exchanges.refusals import LoginRefused
from blumfeld_security.exchanges.scram import (
    MECHANISMS,
    NONCE_BYTES,
    ScramClient,
    ScramMechanism,
    nonce_of,
)

PEER_MECHANISMS = (plain.NAME, *MECHANISMS)
"""Mechanisms by which a node logs in at another one."""
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 1
"""Every Kafka since 1.0 has these, so a login needs no ApiVersions before it."""
M = TypeVar("M", bound=Message)


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """User and password of this node."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password=[hidden])"


def read_login(files: Files, path: str) -> Login:
    """Returns the login in a file.

    :raises BadSecretFile: it can't be read, or isn't of the form
    """
    text = read_secret_file(files, path)
    try:
        login = msgspec.convert(tomllib.loads(text), Login)
        plain.plain_token(login.user, login.password)
    except ValueError:  # of the parsers: their texts may quote the file
        raise BadSecretFile(
            f'{path}: allowed: two lines, user = "NAME" and password = "…", neither empty'
        ) from None
    return login


class PeerLogin:
    """Logs this node in, on one connection after the other."""

    def __init__(self, runtime: Runtime, mechanism: str, login: Login) -> None:
        self._runtime = runtime
        self.user = login.user
        self._mechanism = mechanism
        self._login = login
        self._salted: dict[tuple[bytes, int], bytes] = {}
        """(salt, iterations) → salted password: a node that comes back computes nothing."""

    async def authenticate(self, client: Dialled) -> float | None:
        """As ``PeerSecurity.authenticate``.

        :raises OSError: the other node refuses, or doesn't know this user's credential
        """
        try:
            await self._handshake(client)
            if self._mechanism == plain.NAME:
                token = plain.plain_token(self._login.user, self._login.password)
                lifetime_ms = (await self._step(client, token)).session_lifetime_ms
            else:
                lifetime_ms = await self._scram(client, MECHANISMS[self._mechanism])
        except LoginRefused as refusal:
            raise ConnectionError(
                f"login of {self._login.user!r} by {self._mechanism}: {refusal.reason}"
            ) from None
        return lifetime_ms or None

    async def _handshake(self, client: Dialled) -> None:
        request = SaslHandshakeRequest(mechanism=self._mechanism)
        answer = await _ask(client, request, HANDSHAKE_VERSION, SaslHandshakeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise LoginRefused(f"the other node takes {', '.join(answer.mechanisms) or 'no mechanism'} only")
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused("the other node's listener has no SASL")
        if answer.error_code:
            raise LoginRefused(f"the other node answers with error {answer.error_code} to SaslHandshake")

    async def _scram(self, client: Dialled, mechanism: ScramMechanism) -> int:
        nonce = nonce_of(self._runtime.secrets(NONCE_BYTES))
        exchange = ScramClient(mechanism, self._login.user, nonce)
        challenge = exchange.read(bytes((await self._step(client, exchange.first())).auth_bytes))
        key = (challenge.salt, challenge.iterations)
        salted = self._salted.get(key)
        if salted is None:
            salted = await self._runtime.offload(mechanism.salted_password, self._login.password, *key)
        last = await self._step(client, exchange.proof(challenge, salted))
        exchange.verify(bytes(last.auth_bytes))
        self._salted = {key: salted}
        return last.session_lifetime_ms

    async def _step(self, client: Dialled, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await _ask(client, request, AUTHENTICATE_VERSION, SaslAuthenticateResponse)
        if answer.error_code:
            text = answer.error_message or f"error {answer.error_code}"
            raise LoginRefused(f"the other node refuses: {text[:300]}")
        return answer


async def _ask(client: Dialled, request: Message, version: int, _kind: type[M]) -> M:
    answer: Completion[Any] = Completion()
    client.send(request, version, answer)
    return cast("M", await answer)
