"""Answers that are put together from several shards, and their errors on the wire. Pure.

Group types use these too, so they lie beside the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.wire.acl_operations import mask_of
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

GROUP_OPERATIONS = ("Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs")
"""The operations on a group."""


def merged(parts: Sequence[Completion[Any]], merge: Callable[[Any], Message]) -> Completion[Message]:
    """Completes with one response from all parts, when the last is done; some may have failed. An exception of
    ``merge`` becomes the error."""
    whole: Completion[Message] = Completion()

    def settle(done: Completion[list[Completion[Any]]]) -> None:
        try:
            response = merge(done.result())
        except Exception as error:
            whole.fail(error)
        else:
            whole.complete(response)

    gather(list(parts)).when_done(settle)
    return whole


def code_of(error: BaseException) -> ErrorCode:
    """Returns the error's code for the wire."""
    return error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR


def refused(code: ErrorCode) -> Completion[Any]:
    """A completion that has failed with this code."""
    failed: Completion[Any] = Completion()
    failed.fail(BrokerError(code))
    return failed


def authorized_operations(group: str, context: RequestContext) -> int:
    """Returns the mask of the operations on a group that the principal may do (KIP-430)."""
    return mask_of(name for name in GROUP_OPERATIONS if context.authorize(name, "Group", group, quiet=True))
