"""``python -m campaigns login-times``: whether the time of an answer tells an unknown user from a wrong password.

Both are asked for in turns: PLAIN, SCRAM and delegation tokens, over a socket, and the hashing alone in this process.
The answer is not held back here, which would hide a difference. The share is that of the pairs, one login of each
kind, in which the unknown user took longer: 50 % where time tells nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.client.security.scram import MECHANISMS, ScramClient, ScramMechanism
from blumfeld.testing.process import LOOPBACK, BrokerProcess
from blumfeld.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld_security.exchanges.passwords import PasswordHash, hash_password, is_password
from blumfeld_security.exchanges.scram import Credential, ScramServer, credential_of
from blumfeld_security.scram.credentials import Credentials
from campaigns import figures
from campaigns.connection_faults.secured_listeners import (
    ITERATIONS,
    PORTS,
    SALT,
    add_scram_credentials,
    settings,
)
from campaigns.raw_connection import RawConnection
from campaigns.secured.identities import PASSWORD, USER
from campaigns.terminal import console_of

WRONG = "wrong password"
UNKNOWN = "maltz"
"""As long as the user's name."""
AT_ONCE = 'config."connection.failed.authentication.delay.ms"=0'


class Row(msgspec.Struct, frozen=True):
    """Times of one mechanism, in ms."""

    what: str
    wrong_ms: Sequence[float]
    unknown_ms: Sequence[float]

    def longer(self) -> float:
        """Returns the share of pairs in which the unknown user took longer; ties count half."""
        ranked = sorted([(ms, 0) for ms in self.wrong_ms] + [(ms, 1) for ms in self.unknown_ms])
        below, pairs = 0, 0
        for _, unknown in ranked:
            if unknown:
                pairs += below
            else:
                below += 1
        return pairs / (len(self.wrong_ms) * len(self.unknown_ms))


def in_turns(what: str, login: Callable[[str], float], known: str, unknown: str, times: int) -> Row:
    """Log both in, in an order that chance gives, after a first time that doesn't count.

    :param login: returns the milliseconds that it took
    """
    chance = random.Random(4)
    taken: dict[str, list[float]] = {known: [], unknown: []}
    for nth in range(times + 1):
        for name in chance.sample((known, unknown), 2):
            ms = login(name)
            if nth:
                taken[name].append(ms)
    return Row(what, taken[known], taken[unknown])


def _ms(work: Callable[..., None], *arguments: Any) -> float:
    """Returns how long the work took."""
    began = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - began) * 1000


# In this process


def hashing(times: int) -> Iterable[Row]:
    """The work of a login that fails."""
    salt = b"sixteen bytes..."
    compared = {USER: hash_password(PASSWORD, salt), UNKNOWN: hash_password("nobody's", salt[::-1])}
    yield in_turns("PLAIN", lambda name: _ms(_compare, compared[name]), USER, UNKNOWN, times)
    for mechanism in MECHANISMS.values():
        credentials = Credentials({(USER, mechanism.number): _credential(mechanism)})
        exchange = partial(_exchange, credentials, mechanism)
        yield in_turns(mechanism.name, partial(_ms, exchange), USER, UNKNOWN, times)


def _compare(hashed: PasswordHash) -> None:
    assert not is_password(hashed, WRONG)


def _credential(mechanism: ScramMechanism) -> Credential:
    return credential_of(mechanism, mechanism.salted_password(PASSWORD, SALT, ITERATIONS), SALT, ITERATIONS)


def _exchange(credentials: Credentials, mechanism: ScramMechanism, user: str) -> None:
    server, client = ScramServer(mechanism), ScramClient(mechanism, user, "nonce")
    server.first(client.first())
    made_up = credentials.made_up(mechanism, user)
    challenge = server.challenge(credentials.find(mechanism, user) or made_up, "-of-the-server")
    final = client.proof(client.read(challenge), b"s" * mechanism.size)
    try:
        server.final(final)
    except LoginRefused:
        return
    raise AssertionError("a wrong proof was taken")


# Over a socket


def _connection(mechanism: str) -> RawConnection:
    connection = RawConnection(f"{LOOPBACK}:{PORTS['CLEAR']}")
    connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
    return connection


def _token(connection: RawConnection, token: bytes) -> SaslAuthenticateResponse:
    return connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse)


def _plain(connection: RawConnection, user: str) -> None:
    if not _token(connection, f"\0{user}\0{WRONG}".encode()).error_code:
        raise AssertionError("a wrong password logs in")


def _scram(
    connection: RawConnection, mechanism: ScramMechanism, user: str, extensions: dict[str, str] | None
) -> None:
    client = ScramClient(mechanism, user, "nonce", extensions)
    challenge = client.read(bytes(_token(connection, client.first()).auth_bytes))
    if not _token(connection, client.proof(challenge, b"s" * mechanism.size)).error_code:
        raise AssertionError("a wrong proof logs in")


def over_a_socket(times: int) -> Iterable[Row]:
    """Whole exchanges, without the handshake before them. Connections are made beforehand."""

    def timed(
        what: str, mechanism: str, login: Callable[[RawConnection, str], None], known: str, unknown: str
    ) -> Row:
        def one(name: str) -> float:
            with _connection(mechanism) as connection:
                return _ms(login, connection, name)

        return in_turns(what, one, known, unknown, times)

    yield timed("PLAIN", "PLAIN", _plain, USER, UNKNOWN)
    with _connection("PLAIN") as own:
        _token(own, f"\0{USER}\0{PASSWORD}".encode())
        token = own.ask(CreateDelegationTokenRequest(), 3, CreateDelegationTokenResponse)
    if token.error_code:
        raise RuntimeError(f"no token was made: {token}")
    of_token = {"tokenauth": "true"}
    for mechanism in MECHANISMS.values():

        def scram(connection: RawConnection, name: str, mechanism: ScramMechanism = mechanism) -> None:
            _scram(connection, mechanism, name, None)

        def by_token(connection: RawConnection, name: str, mechanism: ScramMechanism = mechanism) -> None:
            _scram(connection, mechanism, name, of_token)

        yield timed(mechanism.name, mechanism.name, scram, USER, UNKNOWN)
        unknown = token.token_id[::-1].strip("-")
        yield timed(f"token, {mechanism.name}", mechanism.name, by_token, token.token_id, unknown)


def _show(title: str, rows: Iterable[Row], console: Console) -> None:
    columns = ("logins of each", "wrong password ms: 10, 50, 90 %", "unknown user ms", "unknown longer")
    table = figures.table(title, ("login",), columns)
    for row in rows:
        table.add_row(
            row.what, str(len(row.wrong_ms)), _deciles(row.wrong_ms), _deciles(row.unknown_ms), f"{row.longer():.1%}"
        )  # fmt: skip
    console.print(table)


def _deciles(values: Sequence[float]) -> str:
    tenths = statistics.quantiles(values, n=10)
    return ", ".join(f"{tenths[nth]:.3f}" for nth in (0, 4, 8))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m campaigns login-times", description=__doc__)
    parser.add_argument("--times", type=int, default=400, help="logins of each kind")
    given = parser.parse_args(arguments)
    console = console_of(140)
    _show("Hashing alone, in this process", hashing(given.times), console)
    with tempfile.TemporaryDirectory(prefix="blumfeld-login-times-") as folder:
        broker = BrokerProcess(Path(folder), settings=(*settings(), AT_ONCE))
        broker.start()
        try:
            add_scram_credentials(broker.address)
            _show("Over a socket", over_a_socket(given.times), console)
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
