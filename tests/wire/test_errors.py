"""Error codes: the table is Kafka's, and an exception carries what the answer needs."""

from __future__ import annotations

import copy
import pickle

import pytest

from blumfeld.wire.errors import (
    REFRESHES_METADATA,
    RETRIABLE,
    BrokerError,
    CorruptBatch,
    ErrorCode,
    InvalidRecord,
    message_of,
)
from tests.everyday import for_each
from tests.kafka_facts import error_codes


def test_codes_names_and_retriability_are_those_of_kafka() -> None:
    facts = error_codes()
    assert {fact["code"]: fact["name"] for fact in facts} == {int(code): code.name for code in ErrorCode}
    assert {fact["code"] for fact in facts if fact["retriable"]} == RETRIABLE
    assert {fact["code"] for fact in facts if fact["refreshMetadata"]} == REFRESHES_METADATA


@for_each(ErrorCode)
def test_every_code_says_something(code: ErrorCode) -> None:
    assert bool(message_of(code)) == (code is not ErrorCode.NONE)


def test_an_error_without_a_message_leaves_the_answers_field_null() -> None:
    error = BrokerError(ErrorCode.ILLEGAL_GENERATION)
    assert error.message is None
    assert str(error) == "ILLEGAL_GENERATION: the group has moved on to another generation"
    assert str(BrokerError(ErrorCode.INVALID_REQUEST, "why")) == "INVALID_REQUEST: why"


def test_damage_may_be_retried_and_a_broken_rule_may_not() -> None:
    assert CorruptBatch("x").code is ErrorCode.CORRUPT_MESSAGE
    assert CorruptBatch("x").retriable
    assert InvalidRecord("x").code is ErrorCode.INVALID_RECORD
    assert not InvalidRecord("x").retriable


@pytest.mark.parametrize("error", [BrokerError(ErrorCode.NONE, "a"), CorruptBatch("b"), InvalidRecord("c")])
def test_errors_survive_copying(error: BrokerError) -> None:
    """They cross to other threads and processes."""
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert (again.code, again.message) == (error.code, error.message)
