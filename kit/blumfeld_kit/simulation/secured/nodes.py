"""Secured nodes: the plug-in ``security`` with SASL on each listener, ACLs, and the files of passwords."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from blumfeld.plugging.registry import GROUP
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.runtime import Files
from blumfeld.spi.security import Security
from blumfeld_kit.simulation.machine.host import installed
from blumfeld_security.exchanges.passwords import PasswordHash

PLUGIN = "security"
NAME = "security_simulated"
NODE, ADMIN = "node", "admin"
"""Users of PLAIN, and super users: the nodes themselves, and the clients that may do everything."""
DIRECTORY = "/secrets"
USERS_PATH, LOGIN_PATH = f"{DIRECTORY}/users.toml", f"{DIRECTORY}/login.toml"
SECTION = {
    "plugin": NAME,
    "options": {
        "plain_users": USERS_PATH,
        "peer_login": LOGIN_PATH,
        "acls": {"super_users": [f"User:{NODE}", f"User:{ADMIN}"]},
    },
}
ZOOKEEPER_CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256"],
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "delegation.token.secret.key": "the secret of all tokens",
}
CONFIG = {
    **ZOOKEEPER_CONFIG,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
}
LOG2_N = 10
"""Cost of a password's hash: the smallest that the plug-in takes."""


def password_of(user: str) -> str:
    """Return the password of a user of PLAIN."""
    return f"password of {user}"


def plugin() -> EntryPoint:
    """Return the plug-in :data:`PLUGIN` under the name :data:`NAME`: it finds its files on every disk, also a new one,
    as if an operator had put them there."""

    class Point(EntryPoint):
        def load(self) -> Any:
            [point] = [point for point in installed() if point.name == PLUGIN]
            return _with_files(point.load())

    return Point(NAME, f"{__name__}:plugin", GROUP)


def _with_files(security: Any) -> Any:
    class Simulated(security):  # type: ignore[misc]
        @hookimpl
        def blumfeld_make_security(self, composition: Composition) -> Security:
            _write(composition.runtime.files)
            made: Security = super().blumfeld_make_security(composition)
            return made

    return Simulated


def _write(files: Files) -> None:
    if files.exists(LOGIN_PATH):
        return
    files.make_dirs(DIRECTORY)
    files.write_atomically(USERS_PATH, _users().encode())
    files.write_atomically(LOGIN_PATH, f'user = "{NODE}"\npassword = "{password_of(NODE)}"\n'.encode())


@cache
def _users() -> str:
    return "[users]\n" + "".join(f"{user} = '{_hashed(user)}'\n" for user in (NODE, ADMIN))


def _hashed(user: str) -> PasswordHash:
    salt = user.encode().ljust(16)
    digest = hashlib.scrypt(password_of(user).encode(), salt=salt, n=1 << LOG2_N, r=8, p=1, dklen=32)
    return PasswordHash(LOG2_N, 8, 1, salt, digest)
