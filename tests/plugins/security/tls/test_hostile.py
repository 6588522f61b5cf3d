"""Strangers' bytes: fuzzed handshakes leave the layer closed or waiting, nobody in, and nothing behind."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest

from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.tls.handshakes import Handshakes
from campaigns.connection_faults.frames import spoiled
from tests.plugins.security.tls.authority import CLIENT, client_context
from tests.plugins.security.tls.ends import Stranger, server
from tests.plugins.security.tls.test_layer import context


def fuzz(folder: Path, seed: int, count: int = 10_000) -> None:
    """Spoil first messages, and now and then second ones."""
    runtime, chance = FakeRuntime(), random.Random(seed)
    handshakes = Handshakes(runtime)
    served = context(ssl_client_auth="required")
    client = client_context(folder, CLIENT)
    hellos = [Stranger(client).step() for _ in range(20)]
    entered = 0
    for nth in range(count):
        near = server(runtime, served, handshakes)
        if nth % 200:
            near.take(spoiled(chance.choice(hellos), chance) or b"\x16")
            near.sent()
        else:
            entered += second_message(near, Stranger(client), chance)
        assert not near.layer.waiting
        assert near.layer.principal is None
        assert near.plain == b""
        near.layer.detach()
    assert entered == 0
    assert not handshakes._open
    assert handshakes._admitted == 0
    assert handshakes.completed == 0


def second_message(near: object, far: Stranger, chance: random.Random) -> bool:
    """A good first message and a spoiled second one, which has the client's certificate.

    It begins with a ChangeCipherSpec, which TLS 1.3 passes over (RFC 8446, D.4): a fault in it would be none.
    """
    near.take(far.step())  # type: ignore[attr-defined]
    far.incoming.write(near.sent())  # type: ignore[attr-defined]
    second = far.step()
    passed_over, certificate = second[:6], second[6:]
    assert passed_over == b"\x14\x03\x03\x00\x01\x01"
    wrong = passed_over + spoiled(certificate, chance) + far.say(b"request")
    # A byte may become itself, and the next record's first one that which was cut off.
    if wrong.startswith(second):
        wrong = second[:-1]
    near.take(wrong)  # type: ignore[attr-defined]
    near.sent()  # type: ignore[attr-defined]
    return bool(near.layer.completed)  # type: ignore[attr-defined]


def test_fuzzed_handshakes_let_nobody_in(tmp_path: Path) -> None:
    for seed in range(2):
        fuzz(tmp_path, seed)


@pytest.mark.slow
def test_many_fuzzed_handshakes_let_nobody_in(tmp_path: Path) -> None:
    for seed in range(2, 22):
        fuzz(tmp_path, seed)


def test_fuzzed_records_after_the_handshake_close_the_connection(tmp_path: Path) -> None:
    runtime, chance = FakeRuntime(), random.Random(33)
    served, client = context(), client_context(tmp_path)
    for _ in range(100):
        near, far = server(runtime, served), Stranger(client)
        near.take(far.step())
        far.incoming.write(near.sent())
        near.take(far.step())
        near.sent()
        assert near.layer.completed
        record = far.say(b"request")
        wrong = bytearray(record)
        wrong[chance.randrange(5, len(record))] ^= 1 << chance.randrange(8)
        near.take(bytes(wrong))
        assert near.broken is not None
        assert near.plain == b""


def test_an_old_version_is_refused(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    old = client_context(tmp_path)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    hello = bytearray(Stranger(old).step())
    hello[9:11] = b"\x03\x01"  # TLS 1.0
    near = server(runtime, context())
    near.take(bytes(hello))
    near.sent()
    assert near.broken is not None
    assert not near.layer.completed
