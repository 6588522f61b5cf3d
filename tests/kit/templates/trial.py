"""A plug-in that ``blumfeld new`` wrote, tried as its author would: its kit, and a broker with it; in this process."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.testing import EmbeddedBroker
from blumfeld_kit.templates.command import write_folder
from blumfeld_kit.templates.distribution import distribution_files

ALONE = ("cacheprovider", "faulthandler", "timeout", "xdist")
"""Plug-ins of pytest that a run within a run has no use for."""


class _Outcomes:
    """A plug-in of pytest: the tests of a run by their outcome."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.tests[report.outcome].add(report.nodeid.rpartition("::")[2].partition("[")[0])


class Trial:
    """A new plug-in in a folder of its own, on the path."""

    def __init__(self, role: str, parent: Path) -> None:
        self.role = role
        self.name = f"trial_{role.replace('-', '_')}"
        self.folder = parent / self.name
        write_folder(self.folder, distribution_files(role, self.name))

    @contextmanager
    def importable(self) -> Iterator[None]:
        """The package can be imported meanwhile, and is forgotten afterwards."""
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            for name, module in [*sys.modules.items()]:
                if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                    del sys.modules[name]

    def kit(self, *options: str) -> dict[str, set[str]]:
        """Run its tests, and return their names by outcome; a test with a parameter that fails has failed."""
        outcomes = _Outcomes()
        arguments = ["-q", "--tb=no", "--no-header", "-c", str(self.folder / "pyproject.toml")]
        arguments += [
            "--rootdir",
            str(self.folder),
            "-W",
            "ignore",
            "--hypothesis-profile",
            "blumfeld",
            *options,
            str(self.folder / "tests"),
        ]
        for plugin in ALONE:
            arguments += ["-p", f"no:{plugin}"]
        with self.importable():
            pytest.main(arguments, plugins=[outcomes])
        outcomes.tests["passed"] -= outcomes.tests["failed"]
        return outcomes.tests

    @contextmanager
    def broker(self, **sections: Any) -> Iterator[EmbeddedBroker]:
        """A broker with its ``broker.toml``, and with these sections in place of it."""
        manifest: dict[str, Any] = tomllib.loads((self.folder / "broker.toml").read_text()) | sections
        point = EntryPoint(self.name, f"{self.name}:Plugin", GROUP)
        registry = Registry([*entry_points(group=GROUP), point])
        config = manifest.pop("config", {})
        with (
            self.importable(),
            EmbeddedBroker(config=config, manifest=manifest, registry=registry) as running,
        ):
            yield running
