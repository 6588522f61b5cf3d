"""Groups of any type as ListGroups and DescribeGroups answer them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from blumfeld.spi.groups import GroupSummary
from blumfeld.spi.steps import Buckets
from blumfeld.wire.errors import ErrorCode, cut
from blumfeld.wire.messages.describe_groups import DescribedGroup
from blumfeld.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUP_ID_NOT_FOUND_SINCE_VERSION = 6
"""DescribeGroups answers a dead group without an error before this version."""


def listed(request: ListGroupsRequest, summaries: Iterable[GroupSummary]) -> ListGroupsResponse:
    """Those that the filters let through. They ignore case, and what they don't know matches nothing."""
    states, types = _lowered(request.states_filter), _lowered(request.types_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=summary.group_id,
                protocol_type=summary.protocol_type,
                group_state=summary.state,
                group_type=summary.group_type,
            )
            for summary in summaries
            if (not states or summary.state.lower() in states)
            and (not types or summary.group_type.lower() in types)
        ]
    )


def _lowered(names: Sequence[str] | Buckets) -> Container[str]:
    """Buckets are a long filter that its handler has lowered already."""
    return names if isinstance(names, Buckets) else {name.lower() for name in names}


def not_described(group_id: str, version: int, *, exists: bool) -> DescribedGroup:
    """A group that DescribeGroups can't describe: it isn't there, or (``exists``) is of another type than classic."""
    missing = DescribedGroup(group_id=group_id, group_state="Dead")
    if version >= GROUP_ID_NOT_FOUND_SINCE_VERSION:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        problem = "is not a classic group" if exists else "not found"
        missing.error_message = cut(f"Group {group_id} {problem}.")
    return missing
