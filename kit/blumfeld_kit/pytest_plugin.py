"""The pytest plug-in of the kit: readable failures of contract kits, and the promises that no test tried.

Every pytest run of every project in the environment loads this module, so it imports nothing of the broker.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_CONTRACTS = {
    "blumfeld_kit.assignor_contract": "blumfeld.spi.assignors, docs/write-a-plugin.md",
    "blumfeld_kit.authenticator_contract": "blumfeld.spi.security, docs/security.md",
    "blumfeld_kit.authorizer_contract": "blumfeld.spi.security, docs/security.md",
    "blumfeld_kit.consensus_contract": "blumfeld.spi.consensus, docs/adr/0004-consensus-contract.md",
    "blumfeld_kit.groups": "blumfeld.spi.groups, docs/adr/0006-groups-contract.md",
    "blumfeld_kit.object_store_contract": "blumfeld.spi.object_store, docs/adr/0046-tiered-storage.md",
    "blumfeld_kit.observer_contract": "blumfeld.spi.observer, docs/adr/0001-shape-of-the-house.md",
    "blumfeld_kit.quotas_contract": "blumfeld.spi.quotas, docs/quotas.md",
    "blumfeld_kit.storage_contract": "blumfeld.spi.storage, docs/write-a-storage.md",
    "blumfeld_kit.transport_contract": "blumfeld.spi.transport, docs/adr/0002-transport-contract.md",
    "blumfeld_kit.zookeeper_contract": "blumfeld.spi.zookeeper, docs/adr/0047-zookeeper-mode.md",
}
"""Module of a contract kit → the pages where a plug-in's author reads more about its contract."""
# The name of a package covers its modules.
pytest.register_assert_rewrite(*_CONTRACTS, "blumfeld_kit.storage_driver")

_SIMULATED = "a storage that can be simulated"
"""Key of a report's user property, whose value is the name of the kit's subclass. xdist sends these to its master."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a section to the report of a kit's failed test: what the contract demands, and where to read more."""
    report = yield
    function = getattr(item, "function", None)
    module: str = getattr(function, "__module__", "")
    page = next((page for kit, page in _CONTRACTS.items() if f"{module}.".startswith(f"{kit}.")), None)
    if report.failed and function is not None and page is not None:
        name: str = function.__name__
        demand = " ".join((function.__doc__ or f"{name.removeprefix('test_').replace('_', ' ')}.").split())
        said = f"The contract demands: {demand}\nRead more: {page}"
        report.sections.append(("Blumfeld's contract", said))
    kit = getattr(item, "cls", None)
    if module.startswith("blumfeld_kit.storage_contract.") and kit is not None and kit.simulated_disk:
        report.user_properties.append((_SIMULATED, kit.__name__))
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """List the promises of contract kits that no test of this run tried, and name the storage kit's second half."""
    _say_what_was_not_tried(terminalreporter)
    simulated = {
        name
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for key, name in report.user_properties
        if key == _SIMULATED
    }
    if simulated:
        terminalreporter.section("the storage kit's second half", sep="-", bold=True)
        for line in (
            f"{', '.join(sorted(simulated))}: the kit drives a storage alone, one fault at a time.",
            "Run whole brokers on it too, under all faults at once (docs/write-a-storage.md):",
            "    blumfeld simulate --storage NAME --seeds 0-19",
        ):
            terminalreporter.write_line(line)


def _say_what_was_not_tried(terminalreporter: TerminalReporter) -> None:
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "not tried: " in str(report.longrepr)
    ]
    if not skipped:
        return
    from blumfeld_kit.not_tried import said_by, summary

    left_out = []
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        said = said_by(reason)
        if said is not None:
            left_out.append((*said, report.nodeid.rpartition("::")[2].partition("[")[0]))
    terminalreporter.section("promises that were not tried", sep="!", yellow=True, bold=True)
    for line in summary(left_out):
        terminalreporter.write_line(line, yellow=True)
