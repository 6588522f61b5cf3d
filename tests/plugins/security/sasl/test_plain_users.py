"""Users of PLAIN from a file: read, checked off the loop, read again."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.secret_files import BadSecretFile
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.exchanges.passwords import PasswordHash, hash_password, is_password
from blumfeld_security.exchanges.plain import PlainLogin
from blumfeld_security.sasl import hash_workers, plain_users
from blumfeld_security.sasl.hash_workers import WORKERS, HashWorkers
from blumfeld_security.sasl.plain_users import (
    LOOK_MS,
    PlainUsers,
    read_users,
)
from tests.broker.harness import Quiet

HASHES = {name: hash_password(f"{name}-pw", name.encode() * 4) for name in ("alice", "robert")}
PATH = "users.toml"


def text_of(*names: str) -> bytes:
    return ("[users]\n" + "".join(f'{name} = "{HASHES[name]}"\n' for name in names)).encode()


class Rig:
    def __init__(self, *names: str) -> None:
        self.runtime = FakeRuntime()
        self.log = Quiet()
        self.write(text_of(*names))
        self.workers = HashWorkers(self.runtime)
        self.users = PlainUsers(self.runtime, self.log, PATH, self.workers)
        self.runtime.run(self.users.load())

    def write(self, data: bytes) -> None:
        self.runtime.files.write_atomically(PATH, data)

    def enters(self, user: str, password: str) -> bool:
        try:
            self.runtime.run(self.users.verify(PlainLogin(user, password)))
        except LoginRefused:
            return False
        return True


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[PasswordHash]:
    """The hashes that passwords were compared with."""
    compared: list[PasswordHash] = []

    def noting(hashed: PasswordHash, password: str) -> bool:
        compared.append(hashed)
        return is_password(hashed, password)

    monkeypatch.setattr(plain_users, "is_password", noting)
    return compared


def test_the_right_password_enters(hashed: list[PasswordHash]) -> None:
    rig = Rig("alice", "robert")
    assert rig.enters("alice", "alice-pw")
    assert not rig.enters("alice", "robert-pw")
    assert not rig.enters("Alice", "alice-pw")


def test_an_unknown_user_costs_one_hash_as_a_wrong_password_does(hashed: list[PasswordHash]) -> None:
    rig = Rig("alice")
    assert not rig.enters("mallory", "alice-pw")
    assert not rig.enters("alice", "wrong")
    nobody, alice = hashed
    assert alice == HASHES["alice"]
    assert (nobody.log2_n, nobody.block, nobody.parallel) == (alice.log2_n, alice.block, alice.parallel)
    assert nobody.salt != alice.salt


def test_a_password_that_was_right_is_not_hashed_again(hashed: list[PasswordHash]) -> None:
    rig = Rig("alice")
    assert rig.enters("alice", "alice-pw")
    assert rig.enters("alice", "alice-pw")
    assert len(hashed) == 1
    assert not rig.enters("alice", "wrong")
    assert not rig.enters("alice", "wrong")
    assert len(hashed) == 3


def test_a_changed_file_counts_within_a_second() -> None:
    rig = Rig("alice")
    assert rig.enters("alice", "alice-pw")
    rig.runtime.advance(LOOK_MS)
    rig.write(text_of("robert"))
    assert not rig.enters("alice", "alice-pw")
    assert rig.enters("robert", "robert-pw")


def test_a_file_that_breaks_leaves_the_users_as_they_were() -> None:
    rig = Rig("alice")
    rig.runtime.advance(LOOK_MS)
    rig.write(b"[users]\nalice = hunter2\n")
    assert rig.enters("alice", "alice-pw")
    [(level, event, values)] = rig.log.events
    assert (level, event) == ("error", "users of PLAIN stay as they were")
    assert "hunter2" not in str(values)


def test_no_more_than_two_passwords_are_hashed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's other workers are for reads."""
    rig = Rig("alice")
    rig.runtime.offload_delay_ms = lambda: 50.0
    at_work: list[int] = []
    working = 0
    offload = rig.runtime.offload

    def counted(work: Any, *args: Any) -> Any:
        async def run() -> Any:
            nonlocal working
            working += 1
            at_work.append(working)
            try:
                return await offload(work, *args)
            finally:
                working -= 1

        return run()

    async def verify(number: int) -> None:
        with pytest.raises(LoginRefused):
            await rig.users.verify(PlainLogin("alice", f"wrong {number}"))

    monkeypatch.setattr(rig.runtime, "offload", counted)
    for number in range(7):
        rig.runtime.spawn(verify(number), "login")
    rig.runtime.advance(10_000)
    assert not rig.runtime.defects
    assert len(at_work) == 7
    assert max(at_work) == WORKERS


@pytest.mark.parametrize("flood", ["192.0.2.66", "2001:db8::{0:x}"])
@pytest.mark.parametrize("waiting_max", [2_000, 10])
def test_one_client_with_wrong_passwords_shuts_nobody_out(
    monkeypatch: pytest.MonkeyPatch, waiting_max: int, flood: str
) -> None:
    """A client with a /64 may come from another address each time."""
    rig = Rig("alice")
    monkeypatch.setattr(plain_users, "is_password", lambda _, password: password == "alice-pw")
    monkeypatch.setattr(hash_workers, "WAITING_MAX", waiting_max)
    rig.runtime.offload_delay_ms = lambda: 30.0
    ended: list[str] = []

    async def verify(address: str, password: str) -> None:
        try:
            await rig.users.verify(PlainLogin("alice", password), address)
        except LoginRefused:
            ended.append(f"{address} refused")
        else:
            ended.append(f"{address} in")

    for number in range(100):
        rig.runtime.spawn(verify(flood.format(number), f"wrong {number}"), "flood")
    rig.runtime.run_turn()
    rig.runtime.spawn(verify("192.0.2.1", "alice-pw"), "login")
    rig.runtime.advance(100)
    assert "192.0.2.1 in" in ended
    rig.runtime.advance(10_000)
    assert len(ended) == 101
    assert not rig.workers._waiting
    assert rig.workers._waiting_count == rig.workers._hashing == 0


@pytest.mark.parametrize("cancelled", ["while it waits", "when its turn has come"])
def test_a_login_that_is_cancelled_keeps_no_worker(cancelled: str) -> None:
    rig = Rig("alice")
    rig.runtime.offload_delay_ms = lambda: 50.0

    async def hash_one() -> None:
        await rig.workers.hash("192.0.2.1", int)

    logins = [rig.runtime.spawn(hash_one(), "login") for _ in range(WORKERS + 2)]
    rig.runtime.run_turn()

    def cancel(_: object = None) -> None:
        logins[WORKERS].cancel()

    if cancelled == "while it waits":
        cancel()
    else:
        [turns] = rig.workers._waiting.values()
        turns[0].when_done(cancel)
    rig.runtime.advance(1_000)
    assert [login.cancelled() for login in logins].count(True) == 1
    assert all(login.done() for login in logins)
    assert not rig.workers._waiting
    assert rig.workers._waiting_count == rig.workers._hashing == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff", "not UTF-8"),
        (b"alice", "not TOML at"),
        (b"", "one table [users]"),
        (b'users = "x"', "one table [users]"),
        (text_of("alice") + b"[others]\n", "one table [users]"),
        (b'[users]\nalice = "hunter2"\n', "user 1 of [users] has no hash of the form"),
        (b"[users]\nalice = 7\n", "user 1 of [users] has no hash of the form"),
        (b'[users]\n"" = "%s"\n' % str(HASHES["alice"]).encode(), "an empty name"),
    ],
)
def test_a_file_of_another_form_is_refused_without_its_content(data: bytes, why: str) -> None:
    files = FakeRuntime().files
    files.write_atomically(PATH, data)
    with pytest.raises(BadSecretFile) as refused:
        read_users(files, PATH)
    assert why in str(refused.value)
    assert str(refused.value).startswith(PATH)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_bytes(text_of("alice"))
    file.chmod(0o600)
    assert set(read_users(RealFiles(), str(file))) == {"alice"}
    for mode in (stat.S_IROTH, stat.S_IWOTH):
        file.chmod(0o600 | mode)
        with pytest.raises(BadSecretFile, match=f"do: chmod o= {file}"):
            read_users(RealFiles(), str(file))
    with pytest.raises(BadSecretFile, match="No such file"):
        read_users(RealFiles(), str(tmp_path / "absent"))
