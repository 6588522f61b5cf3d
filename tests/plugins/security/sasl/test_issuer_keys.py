"""Keys of bearer tokens are read off the loop, when they are old or unknown, and not for every bad token."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("joserfc")

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.runtime import Files
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime
from blumfeld_security.sasl import issuer_keys
from blumfeld_security.sasl.authenticators import InvalidToken
from blumfeld_security.sasl.bearer_tokens import TokenRules, read_keys
from blumfeld_security.sasl.issuer_keys import (
    UNKNOWN_KEY_PAUSE_MS,
    IssuerKeys,
    KeysUnavailable,
    check_url,
    fetched,
)
from tests.broker.harness import Quiet
from tests.plugins.security.sasl.test_bearer_tokens import EC, RSA, signed

CLAIMS = {"sub": "alice", "iat": EPOCH_MS // 1000, "exp": EPOCH_MS // 1000 + 100_000}


class Rig:
    """Keys that come from a list of documents; ``None`` stands for a source that fails."""

    def __init__(self, *documents: list[object] | None) -> None:
        self.runtime = FakeRuntime()
        self.log = Quiet()
        self.documents = list(documents)
        self.fetches = 0
        self.keys = IssuerKeys(
            self.runtime, self.log, "https://issuer/keys", TokenRules(), 60_000, 5_000, self.fetch
        )
        self.runtime.run(self.keys.load())

    def fetch(self, files: Files, url: str) -> bytes:
        self.fetches += 1
        document = self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
        if document is None:
            raise KeysUnavailable(f"{url}: refused")
        return json.dumps({"keys": [key.as_dict(private=False) for key in document]}).encode()  # type: ignore[attr-defined]

    def enters(self, key: object, algorithm: str) -> bool:
        try:
            return bool(self.runtime.run(self.keys.verify(signed(key, algorithm, CLAIMS))))
        except InvalidToken:
            return False


def test_a_document_of_keys_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1 MiB takes tens of milliseconds."""
    rig = Rig([RSA])
    in_worker, read_in_worker = False, []
    offload = rig.runtime.offload

    def offloaded(work: Any, *args: Any) -> Any:
        def run() -> Any:
            nonlocal in_worker
            in_worker = True
            try:
                return work(*args)
            finally:
                in_worker = False

        return offload(run)

    def noting(data: bytes) -> Any:
        read_in_worker.append(in_worker)
        return read_keys(data)

    rig.runtime.offload = offloaded  # type: ignore[method-assign]
    monkeypatch.setattr(issuer_keys, "read_keys", noting)
    rig.runtime.run(rig.keys.load())
    assert read_in_worker == [True]


def test_a_key_that_is_unknown_is_looked_for_once_in_a_while() -> None:
    rig = Rig([RSA])
    assert rig.enters(RSA, "RS256")
    assert rig.fetches == 1
    for _ in range(50):
        assert not rig.enters(EC, "ES256")
    assert rig.fetches == 2
    rig.documents = [[RSA, EC]]
    rig.runtime.advance(UNKNOWN_KEY_PAUSE_MS)
    assert rig.enters(EC, "ES256")
    assert rig.fetches == 3


def test_a_key_that_the_issuer_took_back_counts_until_the_next_refresh() -> None:
    rig = Rig([RSA], [EC])
    rig.runtime.advance(59_000)
    assert rig.enters(RSA, "RS256")
    rig.runtime.advance(1_000)
    assert not rig.enters(RSA, "RS256")


def test_a_source_that_fails_leaves_the_keys_and_is_not_asked_for_each_token() -> None:
    rig = Rig([RSA], None)
    rig.runtime.advance(60_000)
    for _ in range(10):
        assert rig.enters(RSA, "RS256")
    assert rig.fetches == 2
    assert [event for _, event, _ in rig.log.events] == ["keys of bearer tokens stay as they were"]
    rig.runtime.advance(5_000)
    assert rig.enters(RSA, "RS256")
    assert rig.fetches == 3


def test_keys_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(b"{}")
    assert fetched(RealFiles(), f"file://{file}") == b"{}"
    with pytest.raises(KeysUnavailable, match="No such file"):
        fetched(RealFiles(), f"file://{file}-absent")


@pytest.mark.parametrize(
    "answer", [b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_a_server_that_answers_in_no_http_has_no_keys(answer: bytes) -> None:
    """Else its refresh would be a defect of the login that asked for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4_096)
                client.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        with pytest.raises(KeysUnavailable):
            fetched(RealFiles(), f"http://127.0.0.1:{server.getsockname()[1]}/keys")
        thread.join(5)


def test_a_document_nested_without_end_is_none() -> None:
    with pytest.raises(ValueError, match="no JWKS document"):
        read_keys(b"[" * 100_000)


def test_keys_come_over_https_from_this_machine_or_where_it_is_allowed() -> None:
    for url in (
        "https://issuer/keys",
        "file:///keys.json",
        "http://127.0.0.1:8080/keys",
        "http://issuer/keys",
    ):
        check_url(url, ("http://issuer/keys",))
    for url in ("http://issuer/keys", "ftp://issuer/keys", "/keys.json", ""):
        with pytest.raises(ValueError, match="https"):
            check_url(url, ())
