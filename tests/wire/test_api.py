"""The table of APIs and the look-ups, against the schemas; and that asking costs no import of messages."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from blumfeld.wire.api import (
    API_BY_KEY,
    NEVER,
    ApiKey,
    message_class,
    message_names,
    request_class,
    response_class,
)
from blumfeld.wire.messages.metadata_records import RECORD_TYPES, PartitionRecord


def test_the_table_agrees_with_the_schemas() -> None:
    for key, info in API_BY_KEY.items():
        for cls in (request_class(key), response_class(key)):
            assert cls.meta.key == key
            assert cls.meta.valid.first == info.min_version
            assert cls.meta.valid.last == info.max_version + info.latest_unstable
            first = cls.meta.flexible.first
            assert (NEVER if first > info.max_version + info.latest_unstable else first) == info.flexible_from
    assert [key.value for key in ApiKey] == list(API_BY_KEY)


def test_every_message_is_found_by_its_name() -> None:
    assert len(message_names()) == 281
    for name in message_names():
        cls = message_class(name)
        assert cls.__name__ == cls.meta.name == name
        cls()
    with pytest.raises(KeyError):
        message_class("NoSuchMessage")


def test_the_unstable_version_is_not_among_those_to_advertise() -> None:
    info = API_BY_KEY[ApiKey.INIT_PRODUCER_ID]
    assert (info.max_version, info.latest_unstable) == (5, True)
    assert 6 in request_class(info.key).meta.valid


def test_record_types_lead_to_their_classes() -> None:
    assert RECORD_TYPES[3] is PartitionRecord
    for name in ("group_coordinator", "share_coordinator", "transaction_coordinator"):
        module = import_module(f"blumfeld.wire.messages.{name}_records")
        assert list(module.KEY_TYPES) == list(module.VALUE_TYPES)
        for kind, key in module.KEY_TYPES.items():
            assert key.__name__.removesuffix("Key") == module.VALUE_TYPES[kind].__name__.removesuffix("Value")


def test_importing_the_table_imports_no_message() -> None:
    program = (
        "import sys, blumfeld.wire.api, blumfeld.wire.headers, blumfeld.wire.codec\n"
        "print([m for m in sys.modules if m.startswith('blumfeld.wire.messages.')])"
    )
    run_result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=90
    )
    assert run_result.stdout.strip() == "[]"
