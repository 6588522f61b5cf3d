"""The state table over the wire, of this broker and of Apache Kafka 4.3.1 (tests/traces/transactions_wire_*.txt).

The files have Kafka's answers. ``transactions_differences.txt`` has the rows in which ours are others, with reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from blumfeld.testing import EmbeddedBroker
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.transactions.wire_rows import SETTINGS, Wire
from tests.trace_files import text_of


def recorded(version: int) -> list[str]:
    """Kafka's lines, without the head of the file."""
    lines = text_of(f"transactions_wire_{version}").splitlines()
    return [line for line in lines if not line.startswith("#")]


def known_differences(version: int) -> list[tuple[str, str, str]]:
    """(row, Kafka's answer, ours) of the file."""
    entries = []
    lines = text_of("transactions_differences").splitlines()
    for at, line in enumerate(lines):
        if line.startswith(f"transaction.version {version} | "):
            kafka, here, why = (field.strip().partition(": ") for field in lines[at + 1 : at + 4])
            assert (kafka[0], here[0], why[0]) == ("Kafka", "here", "why")
            assert why[2].strip()
            entries.append((line, kafka[2].strip(), here[2].strip()))
    return entries


def differences(version: int, kafka: list[str], here: list[str]) -> list[tuple[str, str, str]]:
    """The rows that differ."""
    assert len(kafka) == len(here)
    entries, place = [], ""
    for theirs, ours in zip(kafka, here, strict=True):
        if theirs.endswith(":") and not theirs.startswith(" "):
            place = theirs.removesuffix(":")
        elif theirs != ours:
            row = f"transaction.version {version} | {place} | {theirs[2:32].strip()}"
            entries.append((row, theirs[33:].strip(), ours[33:].strip()))
    return entries


@contextmanager
def a_broker_on(folder: Path) -> Iterator[str]:
    options = {"config": SETTINGS, "storage": "storage_local", "data_dir": str(folder)}
    with EmbeddedBroker(**options) as broker:  # type: ignore[arg-type]
        yield broker.bootstrap_servers


def played(version: int, started: Callable[[], AbstractContextManager[str]]) -> list[str]:
    """The lines of the table, of a broker that is started again behind the preparation."""
    with started() as address, closing(Wire(address)) as wire:
        wire.prepare(version)
    with started() as address, closing(Wire(address)) as wire:
        return wire.play(version)


@pytest.mark.parametrize("version", [0, 2])
def test_this_broker_answers_as_kafka_but_for_the_known_differences(tmp_path: Path, version: int) -> None:
    here = played(version, lambda: a_broker_on(tmp_path))
    assert differences(version, recorded(version), here) == known_differences(version)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [0, 2])
def test_kafka_answers_what_is_recorded(tmp_path: Path, version: int) -> None:
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    here = played(version, lambda: kafka_on(peer_script(), tmp_path, *settings))
    assert here == recorded(version)
