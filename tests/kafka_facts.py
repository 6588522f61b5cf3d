"""Facts of Apache Kafka 4.3.1, read from tests/data/kafka: golden bytes, error codes, configuration keys."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "data" / "kafka"


def golden_messages() -> list[dict[str, Any]]:
    """Each message × version in two fillings: ``module, message, version, case, json, hex``."""
    return [json.loads(line) for line in _text("golden_messages.jsonl").splitlines()]


def zookeeper_golden_messages() -> list[dict[str, Any]]:
    """Golden messages of keys 4 to 7, which only Kafka with a ZooKeeper has: from Apache Kafka 3.9.2."""
    return [json.loads(line) for line in _text("golden_messages_zookeeper.jsonl").splitlines()]


def golden_batches() -> dict[str, bytes]:
    """The bytes of each record batch by its case."""
    lines = map(json.loads, _text("golden_batches.jsonl").splitlines())
    return {line["case"]: bytes.fromhex(line["hex"]) for line in lines}


def error_codes() -> list[dict[str, Any]]:
    """Each error code: ``code, name, exception, retriable, refreshMetadata``."""
    facts: list[dict[str, Any]] = json.loads(_text("errors.json"))["errors"]
    return facts


def configs() -> dict[str, list[dict[str, Any]]]:
    """The definitions of configuration keys by scope: ``broker``, ``topic``, ``group`` and others."""
    facts: dict[str, list[dict[str, Any]]] = json.loads(_text("configs.json"))
    return facts


def version() -> str:
    """The version of Apache Kafka that the table of keys is from."""
    version_text: str = json.loads(_text("configs.json"))["kafkaVersion"]
    return version_text


@cache
def _text(name: str) -> str:
    with gzip.open(FOLDER / f"{name}.gz", "rt", encoding="utf-8") as file:
        return file.read()
