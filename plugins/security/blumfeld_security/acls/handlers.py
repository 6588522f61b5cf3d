"""DescribeAcls, CreateAcls, DeleteAcls (keys 29 to 31), v1-3.

Describe needs Describe on the cluster and shows this node's image. The others need Alter on the cluster; the controller
decides, and authorizes the client itself if another node forwards its request. A request with a value 0 (UNKNOWN) has
no answer: the connection is closed, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ClusterMetadata, submit_for
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import Composition
from blumfeld.spi.steps import at_once, errors_by_elements, in_parts, steps_by_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from blumfeld.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_security.acls.commands import filter_of
from blumfeld_security.acls.filters import CLUSTER_NAME, AclFilter
from blumfeld_security.acls.rules import UNKNOWN, Acls
from blumfeld_security.acls.section import SECTION

CREATIONS_AT_ONCE = 256
"""ACLs of one command to the controller."""
SCANNED_AT_ONCE = 50_000
"""ACLs that the filters of one command to the controller look at. A scan takes 0.2 µs an ACL."""
_LISTENERS = ("broker", "controller")


class AclApis:
    """Serves the requests on ACLs."""

    def __init__(self, composition: Composition) -> None:
        self._metadata: ClusterMetadata = composition.metadata
        self._node_id = composition.node_id

    def handlers(self) -> list[ApiHandler]:
        """Returns the three handlers."""
        return [
            self._handler(29, self.describe, _described),
            self._handler(30, self.create, errors_by_elements(_created, ("creations",), ("results",))),
            self._handler(31, self.delete, errors_by_elements(_deleted, ("filters",), ("filter_results",))),
        ]

    @staticmethod
    def _handler(key: int, handle: Any, error_response: Any) -> ApiHandler:
        return ApiHandler(
            key=key,
            min_version=1,
            max_version=3,
            listeners=_LISTENERS,
            handle=handle,
            error_response=error_response,
        )

    def describe(self, request: DescribeAclsRequest, context: RequestContext) -> Any:
        """The ACLs that the filter takes, by resource.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED
        """
        _check(context, "Describe")
        acl_filter = filter_of(request)
        if _closes([acl_filter], context):
            return DescribeAclsResponse()
        steps = _description(self._acls(), acl_filter)
        return steps if len(self._acls()) > CREATIONS_AT_ONCE else at_once(steps)

    def create(self, request: CreateAclsRequest, context: RequestContext) -> Any:
        """Have the controller create them.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER
        """
        _check(context, "Alter")
        creations = request.creations
        if any(
            UNKNOWN in (c.resource_type, c.resource_pattern_type, c.operation, c.permission_type)
            for c in creations
        ):
            context.close_connection("CreateAcls with an UNKNOWN value")
            return CreateAclsResponse()
        return in_parts(self._decided, _created, ("creations",), ("results",), chunk=CREATIONS_AT_ONCE)(
            request, context
        )

    def delete(self, request: DeleteAclsRequest, context: RequestContext) -> Any:
        """Have the controller delete what the filters take: all in one decision, unless there are so many ACLs and
        filters that one would take long.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER
        """
        _check(context, "Alter")
        filters = [filter_of(asked) for asked in request.filters]
        if _closes(filters, context):
            return DeleteAclsResponse()
        scanning = sum(acl_filter.exact() is None for acl_filter in filters)
        if scanning * len(self._acls()) <= SCANNED_AT_ONCE and not context.is_large:
            return self._decided(request, context)
        chunk = max(1, min(CREATIONS_AT_ONCE, SCANNED_AT_ONCE // max(1, len(self._acls()))))
        by_parts = steps_by_parts(self._decided, _deleted, ("filters",), ("filter_results",), chunk)
        return by_parts(request, context)

    def _acls(self) -> Acls:
        acls: Acls = self._metadata.image.section(SECTION)
        return acls

    def _decided(self, request: Message, context: RequestContext) -> Completion[Message]:
        return submit_for(context, request, self._metadata, self._node_id)


def _check(context: RequestContext, operation: str) -> None:
    if not context.authorize(operation, "Cluster", CLUSTER_NAME):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _closes(filters: Iterable[AclFilter], context: RequestContext) -> bool:
    """Whether a filter has a value that closes the connection, which it does then."""
    for one in filters:
        if UNKNOWN in (one.resource_type, one.pattern_type, one.operation, one.permission_type):
            context.close_connection("a filter of ACLs with an UNKNOWN value")
            return True
    return False


def _description(acls: Acls, acl_filter: AclFilter) -> Steps[Message]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for part in acl_filter.found(acls):
        for _, acl in part:
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
        yield None
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def _described(_request: DescribeAclsRequest, code: int, message: str | None) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)


def _created(request: CreateAclsRequest, code: int, message: str | None) -> CreateAclsResponse:
    result = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[result for _ in request.creations])


def _deleted(request: DeleteAclsRequest, code: int, message: str | None) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[result for _ in request.filters])
