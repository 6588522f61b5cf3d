"""Answers of ListGroups, and of DescribeGroups for groups that it can't describe, for all group types. Pure."""

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
    """Returns the groups that pass the request's filters. Filters ignore case; an unknown state or type matches
    none."""
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
    """Returns the names in lower case. A long filter comes as ``Buckets``, and its handler has lowered it already."""
    return names if isinstance(names, Buckets) else {name.lower() for name in names}


def not_described(group_id: str, version: int, *, exists: bool) -> DescribedGroup:
    """Returns the answer for a group that DescribeGroups can't describe: it doesn't exist, or isn't a classic one.

    :param exists: the group exists, with another type
    """
    missing = DescribedGroup(group_id=group_id, group_state="Dead")
    if version >= GROUP_ID_NOT_FOUND_SINCE_VERSION:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        problem = "is not a classic group" if exists else "not found"
        missing.error_message = cut(f"Group {group_id} {problem}.")
    return missing
