"""All columns of the matrix, by title, in the order in which they run."""

from __future__ import annotations

from campaigns.clients.checks.client_checks import COLUMNS as CLIENT_COLUMNS
from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.data_tool_checks import DATA_COLUMNS
from campaigns.clients.checks.group_checks import GROUP_COLUMNS
from campaigns.clients.checks.migration_checks import MIGRATION_COLUMNS
from campaigns.clients.checks.operation_checks import OPERATION_COLUMNS
from campaigns.clients.checks.transaction_checks import TRANSACTION_COLUMNS

COLUMNS: dict[str, Check] = {**CLIENT_COLUMNS, **GROUP_COLUMNS, **MIGRATION_COLUMNS, **TRANSACTION_COLUMNS}
"""Columns of all clients."""
COLUMNS_OF: dict[str, dict[str, Check]] = {"kafka-tools": {**DATA_COLUMNS, **OPERATION_COLUMNS}}
"""Clients that have columns of their own."""


def columns_of(client: str) -> dict[str, Check]:
    """The columns of a client."""
    return COLUMNS_OF.get(client, COLUMNS)
