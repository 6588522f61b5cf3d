"""Every command changes nothing by itself, and its records say everything (docs/design.md, rule 3)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from blumfeld.metadata.controller import COMMANDS, command_for
from blumfeld.wire.api import message_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.schema import Message
from tests.metadata.driven import Driven


def test_a_command_that_no_controller_knows() -> None:
    with pytest.raises(BrokerError) as refused:
        Driven().decide(MetadataRequest())
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_the_same_commands_make_the_same_log() -> None:
    """Nothing in the controller depends on a hash or on chance."""

    def logged() -> list[Message]:
        driven = Driven()
        driven.join(3, 1, 2)
        driven.create("alpha", 5, 2)
        driven.now_ms += 10_000
        driven.expire()
        return driven.log

    assert logged() == logged()


def test_every_command_of_the_contract_is_there() -> None:
    """The commands that spi.consensus names; each request class and each function exists."""
    text = (Path(__file__).parents[2] / "core/blumfeld/spi/consensus.py").read_text()
    named = ast.get_docstring(ast.parse(text)) or ""
    for request in COMMANDS:
        name = request.removesuffix("Request")
        assert command_for(request) is not None
        assert message_class(request).meta.kind == "request"
        if name not in ("UnregisterBroker", "ControllerRegistration"):
            assert name in named, name
