"""The passwords of the users of SCRAM, of which each has several in a run, and their delegation tokens."""

from __future__ import annotations

import base64
from typing import NamedTuple

from blumfeld.client.security.sasl import Credentials
from blumfeld.client.security.scram import ITERATIONS_MIN, MECHANISMS, TOKEN_AUTH
from blumfeld.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.exchanges.scram import credential_of
from blumfeld_security.sasl.peer_login import PeerLogin

MECHANISM = MECHANISMS["SCRAM-SHA-256"]
USERS = ("ada", "bob", "cyd")


class Token(NamedTuple):
    """A delegation token."""

    token_id: str
    owner: str
    """User."""
    secret: bytes

    def login(self, runtime: FakeRuntime) -> PeerLogin:
        """Return the login by the token: its id is the user, and its secret the password (KIP-48)."""
        password = base64.b64encode(self.secret).decode()
        return PeerLogin(runtime, Credentials(MECHANISM.name, self.token_id, password, {TOKEN_AUTH: "true"}))


class Passwords:
    """All passwords of a run, by user and number. Number 0 is never a user's credential."""

    def __init__(self) -> None:
        self.newest = dict.fromkeys(USERS, 0)
        """User → number of the newest password that was sent to a broker."""
        self.tokens: dict[str, Token] = {}
        """Id → token, also those that are gone."""
        self._keys: dict[tuple[str, int], bytes] = {}

    def next_upsertion(self, user: str) -> ScramCredentialUpsertion:
        """Return what gives a user the next password."""
        number = self.newest[user] = self.newest[user] + 1
        salt = f"salt of {user} {number}".encode()
        salted = MECHANISM.salted_password(_text(user, number), salt, ITERATIONS_MIN)
        self._keys[user, number] = credential_of(MECHANISM, salted, salt, ITERATIONS_MIN).stored_key
        return ScramCredentialUpsertion(
            name=user,
            mechanism=MECHANISM.number,
            iterations=ITERATIONS_MIN,
            salt=salt,
            salted_password=salted,
        )

    def key(self, user: str, number: int) -> bytes:
        """Return the key that is stored for a password."""
        return self._keys.get((user, number), b"")

    def login(self, runtime: FakeRuntime, user: str, number: int) -> PeerLogin:
        """Return the login by a password."""
        return PeerLogin(runtime, Credentials(MECHANISM.name, user, _text(user, number)))


def _text(user: str, number: int) -> str:
    return f"{user}-{number}"
