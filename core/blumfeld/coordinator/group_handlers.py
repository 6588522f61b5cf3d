"""API handlers of the groups shard and its group types. They route requests to shards, and merge the shards' answers.

OffsetCommit v2–10, OffsetFetch v1–10, DescribeGroups v0–6, ListGroups v0–5, DeleteGroups v0–2, OffsetDelete
v0, each group type's own APIs, and in a build with transactions TxnOffsetCommit v0–5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from blumfeld.coordinator.groups.errors import (
    commit_error,
    commit_refused,
    dead,
    delete_error,
    describe_error,
    list_error,
    offset_delete_error,
    offset_delete_refused,
    txn_commit_error,
    txn_commit_refused,
)
from blumfeld.coordinator.groups.offset_fetch import GROUPS_SINCE_VERSION, OffsetFetch
from blumfeld.coordinator.groups.shard import DeleteGroup, DescribeGroup, TypeCommand
from blumfeld.coordinator.runtime.coordinator import Coordinator, gather
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, Handle, RequestContext
from blumfeld.spi.groups import GroupProtocol, Submit
from blumfeld.spi.steps import STEP_ELEMENTS, Buckets, by_elements
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from blumfeld.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from blumfeld.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from blumfeld.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Message

GROUP_OPERATIONS = (
    ("Read", 3),
    ("Delete", 6),
    ("Describe", 8),
    ("DescribeConfigs", 10),
    ("AlterConfigs", 11),
)
"""The operations on a group, each with Kafka's number (``AclOperation``)."""

LOAD_IN_PROGRESS_SINCE_VERSION = 2
"""First version of TxnOffsetCommit whose producers understand COORDINATOR_LOAD_IN_PROGRESS."""

ErrorResponse = Callable[[Any, int, str | None], Message]


def group_handlers(
    coordinator: Coordinator,
    protocols: Sequence[GroupProtocol],
    image: Callable[[], ClusterImage],
    transactions: bool = False,
) -> list[ApiHandler]:
    """Returns the handlers of all group APIs of this build; ``transactions`` adds TxnOffsetCommit."""
    groups = GroupApis(coordinator, image)
    fetch = OffsetFetch(coordinator, image)
    shared: list[tuple[ApiKey, int, int, Handle, ErrorResponse]] = [
        (ApiKey.OFFSET_COMMIT, 2, 10, groups.commit, commit_error),
        (ApiKey.OFFSET_FETCH, 1, 10, fetch.handle, fetch.error),
        (ApiKey.DESCRIBE_GROUPS, 0, 6, groups.describe, describe_error),
        (ApiKey.LIST_GROUPS, 0, 5, groups.list, list_error),
        (ApiKey.DELETE_GROUPS, 0, 2, groups.delete, delete_error),
        (ApiKey.OFFSET_DELETE, 0, 0, groups.delete_offsets, offset_delete_error),
    ]
    if transactions:
        shared.append((ApiKey.TXN_OFFSET_COMMIT, 0, 5, groups.commit_in_transaction, txn_commit_error))
    handlers: list[ApiHandler] = []
    for key, low, high, handle, error in shared:
        handlers.append(
            ApiHandler(
                key=key,
                min_version=low,
                max_version=high,
                handle=handle,
                error_response=error,
                in_steps=_in_steps(key, handle, error, groups),
            )
        )
    taken: set[int] = set()
    for protocol in protocols:
        handlers += protocol.handlers(groups.submit_to(protocol.name))
        for api, (low, high) in protocol.apis.items():
            if api not in taken:
                taken.add(api)
                handlers.append(
                    ApiHandler(
                        key=api,
                        min_version=low,
                        max_version=high,
                        handle=groups.of_type,
                        error_response=protocol.error_response,
                        in_steps=_in_steps(api, groups.of_type, protocol.error_response, groups),
                    )
                )
    return handlers


_TOPICS = ("topics", "partitions")
_ARRAYS: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ApiKey.OFFSET_COMMIT: (_TOPICS, _TOPICS),
    ApiKey.TXN_OFFSET_COMMIT: (_TOPICS, _TOPICS),
    ApiKey.OFFSET_DELETE: (_TOPICS, _TOPICS),
    ApiKey.DESCRIBE_GROUPS: (("groups",), ("groups",)),
    ApiKey.DELETE_GROUPS: (("groups_names",), ("results",)),
    ApiKey.LEAVE_GROUP: (("members",), ("members",)),
}
"""Paths of the arrays in a request whose elements are answered one for one, and of those in its response."""
_FETCHED_GROUPS = (("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"))
_FETCHED_TOPICS = (("topics", "partition_indexes"), ("topics", "partitions"))


def _in_steps(
    key: int, handle: Handle, error_response: ErrorResponse, groups: GroupApis
) -> Callable[[Any, RequestContext], Steps[Any] | None] | None:
    """Returns how an API is served for many elements; ``None`` if its arrays can't grow."""
    part = ApiHandler(key=key, min_version=0, max_version=0, handle=handle, error_response=error_response)
    if key == ApiKey.LIST_GROUPS:
        return groups.list_in_steps
    if key == ApiKey.OFFSET_FETCH:
        of_groups = by_elements(lambda: part, *_FETCHED_GROUPS)
        of_topics = by_elements(lambda: part, *_FETCHED_TOPICS)
        return lambda request, context: (
            of_groups if context.api_version >= GROUPS_SINCE_VERSION else of_topics
        )(request, context)
    if key not in _ARRAYS:
        return None
    once = (lambda group: group) if key == ApiKey.DELETE_GROUPS else None
    serve = by_elements(lambda: part, *_ARRAYS[key], once=once)
    if key == ApiKey.LEAVE_GROUP:
        return lambda request, context: serve(request, context) if request.members else None
    return serve


class GroupApis:
    """The handlers of all group APIs but OffsetFetch."""

    def __init__(self, coordinator: Coordinator, image: Callable[[], ClusterImage]) -> None:
        self._coordinator = coordinator
        self._image = image

    def of_type(self, request: Any, context: RequestContext) -> Completion[Any]:
        """Serve any API of a group type: its command goes to the shard of ``request.group_id``."""
        if not request.group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._coordinator.submit(request.group_id, request, context)

    def submit_to(self, group_type: str) -> Submit:
        """Returns the function with which a group type's own handlers submit commands."""

        def submit(group_id: str, command: Any, context: RequestContext) -> Completion[Any]:
            return self._coordinator.submit(group_id, TypeCommand(group_type, command), context)

        return submit

    def commit(self, request: OffsetCommitRequest, context: RequestContext) -> Completion[Any]:
        """OffsetCommit. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED."""
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._of_topics(request, context, commit_refused)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Completion[Any]:
        """TxnOffsetCommit. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED.

        The transaction coordinator must verify that the partition is part of the transaction (KIP-890).
        """
        if not context.authorize("Write", "TransactionalId", request.transactional_id):
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not context.authorize("Read", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        submitted = self._of_topics(request, context, txn_commit_refused)
        if context.api_version < LOAD_IN_PROGRESS_SINCE_VERSION:
            submitted = _loading_as_not_available(submitted)
        return submitted

    def _of_topics(
        self,
        request: OffsetCommitRequest | OffsetDeleteRequest | TxnOffsetCommitRequest,
        context: RequestContext,
        refused: Callable[[Any, int], Any],
    ) -> Completion[Any]:
        """Submit the request with the topics that the client may read. The answer has all topics, in the request's
        order."""
        allowed = [self._may_read(topic, context) for topic in request.topics]
        if all(allowed):
            return self._coordinator.submit(request.group_id, request, context)
        kept: list[Any] = [topic for topic, may in zip(request.topics, allowed, strict=True) if may]
        submitted = self._coordinator.submit(request.group_id, replace(request, topics=kept), context)

        def merge(done: list[Completion[Any]]) -> Message:
            response: Message = done[0].result()
            answers = iter(response.topics)  # type: ignore[attr-defined]
            response.topics = [  # type: ignore[attr-defined]
                next(answers) if may else refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for topic, may in zip(request.topics, allowed, strict=True)
            ]
            return response

        return merged([submitted], merge)

    def _may_read(
        self,
        topic: OffsetCommitRequestTopic | OffsetDeleteRequestTopic | TxnOffsetCommitRequestTopic,
        context: RequestContext,
    ) -> bool:
        name = topic.name
        if isinstance(topic, OffsetCommitRequestTopic) and topic.topic_id != ZERO_UUID:
            known = self._image().topic_by_id(topic.topic_id)
            if known is None:
                return True  # the shard answers UNKNOWN_TOPIC_ID
            name = known.name
        return context.authorize("Read", "Topic", name)

    def describe(self, request: DescribeGroupsRequest, context: RequestContext) -> Completion[Message]:
        """DescribeGroups: each group from its shard, in the order asked."""
        asked = list(request.groups)
        described: list[Completion[Any]] = []
        for group in asked:
            if context.authorize("Describe", "Group", group):
                command = DescribeGroup(group, context.api_version)
                described.append(self._coordinator.submit(group, command, context))
            else:
                described.append(_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))

        def merge(done: list[Completion[Any]]) -> Message:
            response = DescribeGroupsResponse()
            for group, item in zip(asked, done, strict=True):
                if item.error is not None:
                    response.groups.append(dead(group, code_of(item.error)))
                    continue
                described: DescribedGroup = item.result()
                if request.include_authorized_operations:
                    described.authorized_operations = authorized_operations(group, context)
                response.groups.append(described)
            return response

        return merged(described, merge)

    def list(self, request: ListGroupsRequest, context: RequestContext) -> Completion[Message]:
        """ListGroups, from all shards on this node. Groups that the principal may not describe are left out."""
        all_of_them = context.authorize("Describe", "Cluster", "kafka-cluster")

        def may_see(group_id: str) -> bool:
            return all_of_them or context.authorize("Describe", "Group", group_id)

        def merge(done: list[Completion[Any]]) -> Message:
            response = ListGroupsResponse()
            for item in done:
                if item.error is None:
                    response.groups += [group for group in item.result().groups if may_see(group.group_id)]
                # Another node leads that partition by now.
                elif code_of(item.error) != ErrorCode.NOT_COORDINATOR:
                    return ListGroupsResponse(error_code=code_of(item.error))
            return response

        return merged(self._coordinator.submit_to_all(request, context), merge)

    def list_in_steps(self, request: ListGroupsRequest, context: RequestContext) -> Steps[Any]:
        """ListGroups with long filters. They are put into lower case once, not by each shard."""
        filters: list[Buckets] = []
        for name in ("states_filter", "types_filter"):
            filters.append(Buckets())
            for number, value in enumerate(getattr(request, name)):
                filters[-1].of(lowered := value.lower())[lowered] = True
                if not number % STEP_ELEMENTS:
                    yield None
            setattr(request, name, filters[-1])
        listed = self.list(request, context)
        if not listed.done:
            yield listed
        for one in filters:
            yield from one.let_go()
        return listed

    def delete(self, request: DeleteGroupsRequest, context: RequestContext) -> Completion[Message]:
        """DeleteGroups: each group on its own, once."""
        asked = list(dict.fromkeys(request.groups_names))
        deleted: list[Completion[Any]] = []
        for group in asked:
            if context.authorize("Delete", "Group", group):
                deleted.append(self._coordinator.submit(group, DeleteGroup(group), context))
            else:
                deleted.append(_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))

        def merge(done: list[Completion[Any]]) -> Message:
            return DeleteGroupsResponse(
                results=[
                    item.result()
                    if item.error is None
                    else DeletableGroupResult(group_id=group, error_code=code_of(item.error))
                    for group, item in zip(asked, done, strict=True)
                ]
            )

        return merged(deleted, merge)

    def delete_offsets(self, request: OffsetDeleteRequest, context: RequestContext) -> Completion[Any]:
        """OffsetDelete. Topics that may not be read fail on their own: TOPIC_AUTHORIZATION_FAILED."""
        if not context.authorize("Delete", "Group", request.group_id):
            raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        return self._of_topics(request, context, offset_delete_refused)


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


def _loading_as_not_available(submitted: Completion[Any]) -> Completion[Any]:
    """Replace COORDINATOR_LOAD_IN_PROGRESS, which breaks old producers (KAFKA-7296), by COORDINATOR_NOT_AVAILABLE."""
    answered: Completion[Any] = Completion()

    def settle(done: Completion[Any]) -> None:
        if done.error is None:
            answered.complete(done.result())
        elif code_of(done.error) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answered.fail(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            answered.fail(done.error)

    submitted.when_done(settle)
    return answered


def _refused(code: ErrorCode) -> Completion[Any]:
    refused: Completion[Any] = Completion()
    refused.fail(BrokerError(code))
    return refused


def authorized_operations(group: str, context: RequestContext) -> int:
    """Returns the mask of the operations on a group that the principal may do (KIP-430)."""
    return sum(1 << bit for name, bit in GROUP_OPERATIONS if context.authorize(name, "Group", group))
