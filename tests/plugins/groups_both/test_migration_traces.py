"""The rules by which a group goes from one protocol to the other (KIP-848), as scripts that read like it."""

from __future__ import annotations

from tests.plugins.groups_both.migration_trace import MigrationScript
from tests.trace_files import check_trace, each_trace


@each_trace("migration")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, MigrationScript().run)
