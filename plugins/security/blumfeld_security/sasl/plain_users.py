"""Users of PLAIN, from a file: names and hashed passwords, checked off the loop.

.. code-block:: toml

    [users]
    alice = "$scrypt$ln=14,r=8,p=1$…$…"
"""

from __future__ import annotations

import hmac
import tomllib
from collections import deque
from collections.abc import Mapping

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Files, Runtime
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
from blumfeld_security.exchanges.refusals import LoginRefused
from blumfeld_security.secret_files import BadSecretFile, read_secret_file

LOOK_MS = 1_000
"""Pause between two looks at the file. A user that was taken out of it may log in until the next look."""
WORKERS = 2
"""Passwords that are hashed at once. The runtime has more workers, so that logins never hold up a cold read."""
WAITING_MAX = 2_000
"""Logins that wait for a worker. Hashing takes tens of milliseconds, so clients of a longer queue have given up."""
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

    def __init__(self, runtime: Runtime, events: EventLog, path: str) -> None:
        self._runtime = runtime
        self._events = events
        self._path = path
        self._users: Mapping[str, PasswordHash] = {}
        self._nobody = PasswordHash(LOG2_N, BLOCK, PARALLEL, bytes(SALT_BYTES), bytes(HASH_BYTES))
        """The hash that an unknown user's password is compared with."""
        self._modified_ms = 0
        self._looked_ms = 0.0
        self._key = runtime.secrets(32)
        self._known: dict[bytes, None] = {}
        self._hashing = 0
        self._waiting: dict[str, deque[Completion[None]]] = {}
        """Address → its logins that wait for a worker. Addresses take turns; the next one stands first."""
        self._waiting_count = 0

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
        right = await self._is_password(hashed or self._nobody, login.password, address)
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

    async def _is_password(self, hashed: PasswordHash, password: str, address: str) -> bool:
        if self._hashing >= WORKERS:
            await self._turn(address)
        else:
            self._hashing += 1
        try:
            return await self._runtime.offload(is_password, hashed, password)
        finally:
            if self._waiting:
                self._taken(next(iter(self._waiting)), 0).complete(None)
            else:
                self._hashing -= 1

    def _turn(self, address: str) -> Completion[None]:
        """Returns what completes when a worker is free. Where too many wait, an address with less than its share takes
        the place of the last one of the address with most.

        :raises LoginRefused: the address has its share
        """
        if self._waiting_count >= WAITING_MAX:
            own = len(self._waiting.get(address, ()))
            if own >= WAITING_MAX // (len(self._waiting) + (not own)):
                raise _too_many()
            self._taken(max(self._waiting, key=lambda each: len(self._waiting[each])), -1).fail(_too_many())
        turn: Completion[None] = Completion()
        self._waiting.setdefault(address, deque()).append(turn)
        self._waiting_count += 1
        return turn

    def _taken(self, address: str, place: int) -> Completion[None]:
        """Take a login of this address out; its others stand behind those of the other addresses then."""
        logins = self._waiting.pop(address)
        turn = logins[place]
        del logins[place]
        if logins:
            self._waiting[address] = logins
        self._waiting_count -= 1
        return turn

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


def _too_many() -> LoginRefused:
    return LoginRefused(f"{WAITING_MAX} logins wait for the hash of their password", "Too many logins wait")


def _read_if_changed(
    files: Files, path: str, modified_ms: int | None
) -> tuple[int, dict[str, PasswordHash]] | None:
    try:
        now_ms = files.modified_ms(path)
    except OSError as error:
        raise BadSecretFile(f"{path}: {error.strerror}") from None
    return None if now_ms == modified_ms else (now_ms, read_users(files, path))
