"""All columns of the matrix, by title, in the order in which they run."""

from __future__ import annotations

from blumfeld.testing.clients import checks
from blumfeld.testing.clients.checks import Check
from blumfeld.testing.clients.group_checks import GROUP_COLUMNS

COLUMNS: dict[str, Check] = {**checks.COLUMNS, **GROUP_COLUMNS}
ALL_CHECKS: dict[str, Check] = COLUMNS
