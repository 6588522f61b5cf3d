"""All columns of the matrix, by title, in the order in which they run."""

from __future__ import annotations

from campaigns.clients import checks
from campaigns.clients.checks import Check
from campaigns.clients.group_checks import GROUP_COLUMNS
from campaigns.clients.tool_checks import TOOL_COLUMNS

COLUMNS: dict[str, Check] = {**checks.COLUMNS, **GROUP_COLUMNS}
"""What clients are asked."""
COLUMNS_OF: dict[str, dict[str, Check]] = {"kafka-tools": TOOL_COLUMNS}
"""Clients that have columns of their own."""


def columns_of(client: str) -> dict[str, Check]:
    """The columns of a client."""
    return COLUMNS_OF.get(client, COLUMNS)
