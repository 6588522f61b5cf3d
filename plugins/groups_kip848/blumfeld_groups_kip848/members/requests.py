"""Validation of ConsumerGroupHeartbeat, before any group is looked up."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.context import RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld_groups_kip848.group import LEFT_FOR_A_WHILE

MEMBER_ID_SINCE_VERSION = 1
"""First version in which members make their own ids (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext, assignors: Sequence[str]
) -> None:
    """Check the request, in Kafka's order.

    :raises BrokerError: TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR
    """
    for name in request.subscribed_topic_names or ():
        if not context.authorize("Describe", "Topic", name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    epoch = request.member_epoch
    if epoch != 0 or context.api_version >= MEMBER_ID_SINCE_VERSION:
        _check_given("MemberId", request.member_id)
    _check_given("InstanceId", request.instance_id)
    _check_given("RackId", request.rack_id)
    if epoch == 0:
        _check_first(request)
    elif epoch < LEFT_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    elif epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _check_first(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _check_given(field: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
