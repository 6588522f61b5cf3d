"""This node's own login at other nodes: PLAIN or SCRAM, with a user and a password from a file.

.. code-block:: toml

    user = "broker"
    password = "…"
"""

from __future__ import annotations

import tomllib
from typing import Any, cast

import msgspec

from blumfeld.client.security import scram
from blumfeld.client.security.refusals import LoginRefused
from blumfeld.client.security.sasl import PLAIN, VERSION, Credentials, Salting, login_steps, plain_token
from blumfeld.client.security.scram import NONCE_BYTES, nonce_of
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Files, Runtime
from blumfeld.spi.secret_files import BadSecretFile, read_secret_file
from blumfeld.spi.security import Dialled
from blumfeld.wire.schema import Message

PEER_MECHANISMS = (PLAIN, *scram.MECHANISMS)
"""Mechanisms by which a node logs in at another one."""


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """User and password of this node."""

    user: str
    password: str

    def by(self, mechanism: str) -> Credentials:
        """Returns the login by one of :data:`PEER_MECHANISMS`."""
        return Credentials(mechanism, self.user, self.password)

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password=[hidden])"


def read_login(files: Files, path: str) -> Login:
    """Returns the login in a file.

    :raises BadSecretFile: it can't be read, or isn't of the form
    """
    text = read_secret_file(files, path)
    try:
        login = msgspec.convert(tomllib.loads(text), Login)
        plain_token(login.user, login.password)
    except ValueError:  # of the parsers: their texts may quote the file
        raise BadSecretFile(
            f'{path}: allowed: two lines, user = "NAME" and password = "…", neither empty'
        ) from None
    return login


class PeerLogin:
    """Logs this node in, on one connection after the other."""

    def __init__(self, runtime: Runtime, credentials: Credentials) -> None:
        self._runtime = runtime
        self.user = credentials.user
        self._credentials = credentials
        self._salted: dict[Salting, bytes] = {}
        """The last salted password: a node that comes back computes nothing."""

    async def authenticate(self, client: Dialled) -> float | None:
        """As ``PeerSecurity.authenticate``.

        :raises OSError: the other node refuses, or doesn't know this user's credential
        """
        steps = login_steps(self._credentials, lambda: nonce_of(self._runtime.secrets(NONCE_BYTES)))
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Salting):
                    effect = steps.send(await self._salt(effect))
                else:
                    effect = steps.send(await _ask(client, effect))
        except StopIteration as done:
            return done.value or None
        except LoginRefused as refusal:
            raise ConnectionError(self._credentials.refused(refusal.reason)) from None

    async def _salt(self, work: Salting) -> bytes:
        salted = self._salted.get(work)
        if salted is None:
            salted = await self._runtime.offload(work.salted)
            self._salted = {work: salted}
        return salted


async def _ask(client: Dialled, request: Message) -> Message:
    answer: Completion[Message] = Completion()
    client.send(request, VERSION, answer)
    return cast("Message", await cast("Any", answer))
