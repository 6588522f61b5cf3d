"""Every command of the controller with extreme values in every field: its log can be read after it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.metadata.controller import COMMANDS
from blumfeld.wire.api import message_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from tests.everyday import examples
from tests.extreme_values import Ordinary, one_at_a_time, requests
from tests.metadata.driven import CLUSTER_ID, Driven, directory_id, replayed

EXAMPLES = 25
"""For each command; fewer in an everyday run."""


def served() -> tuple[Driven, Ordinary]:
    """A controller of two brokers and two topics, and what its clients send."""
    driven = Driven()
    epochs = driven.join(1, 2)
    driven.create("alpha", partitions=2, factor=2)
    driven.create("beta")
    ordinary: dict[str, list[Any]] = {
        "broker_id": [1, 2],
        "broker_epoch": epochs,
        "incarnation_id": [b"process" + (1).to_bytes(4) + (1).to_bytes(5)],
        "cluster_id": [CLUSTER_ID],
        "current_metadata_offset": [len(driven.log)],
        "name": ["alpha", "beta", "metadata.version", "retention.ms"],
        "names": ["alpha"],
        "resource_name": ["alpha", "1", ""],
        "resource_type": [2, 4],
        "config_operation": [0, 1, 2, 3],
        "value": ["1000", None],
        "feature": ["metadata.version"],
        "topic_name": ["alpha"],
        "topic_names": ["alpha"],
        "topic_id": [driven.image.topics["alpha"].topic_id],
        "partition_index": [0, 1],
        "num_partitions": [1, 2],
        "replication_factor": [1, 2],
        "count": [3],
        "broker_ids": [1, 2],
        "replicas": [1, 2],
        "new_isr": [1, 2],
        "leader_epoch": [0],
        "partition_epoch": [0],
        "id": [directory_id(1)],
        "log_dirs": [directory_id(1)],
        "offline_log_dirs": [directory_id(1)],
        "min_supported_version": [7],
        "max_supported_version": [30],
        "max_version_level": [30],
        "host": ["localhost"],
        "port": [9092],
    }
    return driven, ordinary


def decide(driven: Driven, request: Message, version: int) -> None:
    """Send it as a client does: it may be refused, and what is answered can be written in its version."""
    request = decode(type(request), encode(request, version), version)
    before = driven.image.copy()
    try:
        decision = driven.decide(request)
    except BrokerError:
        return
    assert driven.image == before, "a command alone changes nothing"
    response = driven.carry_out(decision).response
    driven.controller.answered(request, response, driven.now_ms)
    response_version = min(max(version, response.meta.valid.first), response.meta.valid.last)
    encode(response, response_version)


def check(driven: Driven) -> None:
    """The next ordinary command works, a session can end, and the log gives the same image."""
    assert driven.create("bystander").error_code in (ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR)
    driven.now_ms += 60_000
    driven.expire()
    assert replayed(driven.log).topics == driven.image.topics


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_extreme_values_in_any_combination(name: str) -> None:
    """No exception but ``BrokerError`` escapes from a command or from the replay of its records."""
    cls = message_class(name)
    valid = cls.meta.valid

    @settings(max_examples=examples(EXAMPLES))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        driven, ordinary = served()
        for _ in range(data.draw(st.integers(1, 3))):
            version = data.draw(st.integers(valid.first, valid.last))
            decide(driven, data.draw(requests(cls, version, ordinary)), version)
        check(driven)

    run()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_field_by_itself_has_no_value_that_is_a_defect(name: str) -> None:
    """Every extreme value of every field in every version, all other fields being ordinary."""
    cls = message_class(name)
    for version in range(cls.meta.valid.first, cls.meta.valid.last + 1):
        driven, ordinary = served()
        for request in one_at_a_time(cls, version, ordinary):
            decide(driven, request, version)
        check(driven)
