"""What Kafka's console tools print: records, and the client's log between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.clients.client import CheckFailed
from campaigns.clients.java import SEPARATOR, JavaTools
from campaigns.clients.records import numbered_samples
from campaigns.references import PEER_VARIABLE

REFUSED = """\
04:53:38.726 [producer] ERROR org.apache.kafka.clients.NetworkClient - [p] Connection to node -2 failed
04:53:38.741 [producer] WARN  org.apache.kafka.clients.NetworkClient - [p] Bootstrap broker disconnected
04:53:38.754 [main] ERROR org.apache.kafka.clients.producer.internals.ErrorLoggingCallback - Error when sending
org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed
\tat sun.security.Alert.createSSLException(Alert.java:131)
Caused by: javax.net.ssl.SSLHandshakeException: Received fatal alert: unknown_ca
"""
RETRIED = "04:53:38.741 [p] WARN  org.apache.kafka.clients.NetworkClient - [p] {t=LEADER_NOT_AVAILABLE}\n"
RECORD = SEPARATOR.join(
    ("CreateTime:1", "Partition:0", "Offset:7", "NO_HEADERS", "key", f"value {SEPARATOR}")
)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaTools:
    """It runs a script that prints ``said``, and ends with status 0."""
    script = tmp_path / "peer"
    script.write_text(f"#!/bin/sh\necho $* > {tmp_path / 'asked'}\ncat >/dev/null\ncat {tmp_path / 'said'}\n")
    script.chmod(0o755)
    monkeypatch.setenv(PEER_VARIABLE, str(script))
    return JavaTools("127.0.0.1:1")


def test_a_producer_whose_records_are_not_taken_fails_in_the_words_of_its_log(
    client: JavaTools, tmp_path: Path
) -> None:
    """ConsoleProducer ends with status 0 all the same."""
    samples = numbered_samples(1, 1)
    (tmp_path / "said").write_text(RETRIED)
    client.produce("t", samples)
    assert "--request-timeout-ms 30000 " in (tmp_path / "asked").read_text()
    (tmp_path / "said").write_text(REFUSED)
    with pytest.raises(CheckFailed) as failure:
        client.produce("t", samples)
    assert str(failure.value) == (
        "[p] Connection to node -2 failed / "
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed / "
        "Caused by: javax.net.ssl.SSLHandshakeException: Received fatal alert: unknown_ca"
    )


def test_a_line_of_the_log_is_no_record(client: JavaTools, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(f"{RETRIED}{RECORD}\n{RETRIED}")
    [record] = client.consume("t", "g", 1)
    assert (record.offset, record.key, record.value) == (7, b"key", f"value {SEPARATOR}".encode())


def test_a_tool_that_fails_is_told_without_the_frames_of_its_exception(
    client: JavaTools, tmp_path: Path
) -> None:
    (tmp_path / "peer").write_text(f"#!/bin/sh\ncat {tmp_path / 'said'} >&2\nexit 1\n")
    frames = "\n\tat org.apache.kafka.A.b(A.java:1)" * 5
    (tmp_path / "said").write_text(f"Exception: first{frames}\nCaused by: second{frames}\n\t... 12 more\n")
    with pytest.raises(CheckFailed, match=r"exit status 1: Exception: first / Caused by: second$"):
        client.group_ids()
