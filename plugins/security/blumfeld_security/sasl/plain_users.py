"""Users of PLAIN, from a file: names and hashed passwords, checked off the loop.

.. code-block:: toml

    [users]
    alice = "$scrypt$ln=14,r=8,p=1$…$…"
"""

from __future__ import annotations

import hmac
import tomllib
from collections.abc import Mapping

import msgspec

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Files, Runtime
from blumfeld.spi.secret_files import BadSecretFile, read_secret_file
from blumfeld_security.exchanges.passwords import (
    BLOCK,
    HASH_BYTES,
    LOG2_N,
    PARALLEL,
    SALT_BYTES,
    PasswordHash,
    is_password,
    read_hash,
)
from blumfeld_security.exchanges.plain import WRONG, PlainLogin
from blumfeld_security.sasl.hash_workers import HashWorkers

LOOK_MS = 1_000
"""Pause between two looks at the file. A user that was taken out of it may log in until the next look."""
KNOWN_MAX = 10_000
"""Passwords that were right, remembered by a keyed hash: a client that comes again waits for no scrypt."""


def read_users(files: Files, path: str) -> dict[str, PasswordHash]:
    """Returns the users in the file.

    :raises BadSecretFile: it can't be read, or isn't of the form
    """
    text = read_secret_file(files, path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser's text ends with the place, "(at line 2, column 9)". What comes before may quote the file.
        place = str(error).rpartition("(at ")[2].rstrip(")") or "its end"
        raise BadSecretFile(f"{path}: not TOML at {place}") from None
    users = document.pop("users", None)
    if not isinstance(users, dict) or document:
        raise BadSecretFile(
            f"{path}: found other things than one table [users]; allowed: NAME = HASH below it"
        )
    hashes = {}
    for number, (name, text) in enumerate(users.items(), 1):
        try:
            hashes[name] = read_hash(text if isinstance(text, str) else "")
        except ValueError as error:
            hint = "make one with: blumfeld security hash-password"
            raise BadSecretFile(f"{path}: user {number} of [users] has {error}; {hint}") from None
        if not name or "\0" in name:
            raise BadSecretFile(f"{path}: user {number} of [users] has an empty name, or one with a NUL")
    return hashes


class PlainUsers:
    """The verifier of PLAIN. :meth:`load` once; then :meth:`verify` for each login."""

    def __init__(self, runtime: Runtime, events: EventLog, path: str, workers: HashWorkers) -> None:
        self._runtime = runtime
        self._workers = workers
        self._events = events
        self._path = path
        self._users: Mapping[str, PasswordHash] = {}
        self._nobody = PasswordHash(LOG2_N, BLOCK, PARALLEL, bytes(SALT_BYTES), bytes(HASH_BYTES))
        """The hash that an unknown user's password is compared with."""
        self._modified_ms = 0
        self._looked_ms = 0.0
        self._key = runtime.secrets(32)
        self._known: dict[bytes, None] = {}

    async def load(self) -> None:
        """Read the file.

        :raises BadSecretFile: as :func:`read_users`
        """
        read = await self._runtime.offload(_read_if_changed, self._runtime.files, self._path, None)
        assert read is not None
        self._take(*read)

    def _take(self, modified_ms: int, users: Mapping[str, PasswordHash]) -> None:
        self._looked_ms = self._runtime.monotonic_ms()
        self._modified_ms, self._users = modified_ms, users
        if users:  # nobody costs what the first user costs
            like = next(iter(users.values()))
            self._nobody = msgspec.structs.replace(like, salt=self._runtime.secrets(len(like.salt)))

    async def verify(self, login: PlainLogin, address: str = "") -> None:
        """Return if the password is right. Addresses take turns at the workers.

        An unknown user takes as long as a wrong password.

        :raises LoginRefused: it isn't, or too many logins wait
        """
        await self._look()
        hashed = self._users.get(login.user)
        proof = self._proof(login, hashed)
        if proof in self._known:
            return
        compared = hashed or self._nobody
        right = await self._workers.hash(address, is_password, compared, login.password)
        if not right or hashed is None:
            what = "no such user" if hashed is None else "wrong password"
            raise LoginRefused(f"{what}: {login.user[:60]!r}", WRONG)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[proof] = None

    def _proof(self, login: PlainLogin, hashed: PasswordHash | None) -> bytes:
        """Returns a value for this user, password and line of the file, worthless without this process's key."""
        line = b"" if hashed is None else hashed.salt + hashed.digest
        key = hmac.digest(self._key, line, "sha256")
        return hmac.digest(key, f"{login.user}\0{login.password}".encode(), "sha256")

    async def _look(self) -> None:
        """Read the file again if it has changed. One that can't be used leaves the users as they were."""
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        try:
            read = await self._runtime.offload(
                _read_if_changed, self._runtime.files, self._path, self._modified_ms
            )
        except BadSecretFile as error:
            self._events.error("users of PLAIN stay as they were", reason=str(error))
            return
        if read is not None:
            self._take(*read)
            self._events.info("users of PLAIN read again", path=self._path, users=len(self._users))


def _read_if_changed(
    files: Files, path: str, modified_ms: int | None
) -> tuple[int, dict[str, PasswordHash]] | None:
    try:
        now_ms = files.modified_ms(path)
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from None
    return None if now_ms == modified_ms else (now_ms, read_users(files, path))
