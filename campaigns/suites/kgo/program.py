"""The suite as a program: fetched by the Go client at run time, built once, run against a cluster.

Its sources are the Go module that the franz-go client of the matrix needs, too, in the same version. They lie in the
Go client's own cache, and a copy in the user's cache: a module cache can't be written, and the suite is built in place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaigns.clients.client import CheckFailed, cache_folder, run_program
from campaigns.clients.franz_go import FranzGo, go_program
from campaigns.secured.identities import NODE, PASSWORD
from campaigns.suites.kgo.events import outcomes_of
from campaigns.suites.outcomes import Outcome
from campaigns.suites.runs import NoSuiteError, Secured

MODULE = "github.com/twmb/franz-go"
PACKAGE = "pkg/kgo"
RECORDS = 20_000
LIMIT_S = 900.0
DOWNLOAD_S = 300.0
BUILD_S = 900.0
LIST_S = 30.0
GRACE_S = 30.0
"""Time that the program has after its own time-out to print the stacks of its goroutines."""


class KgoSuite:
    """The built suite, and the options of a run; parameters as the campaign's.

    :raises NoSuiteError: there is no go, or it can't fetch or build the suite
    """

    title = "kgo's own tests"
    configs: Mapping[str, str] = {"group.initial.rebalance.delay.ms": "0"}

    def __init__(self, given: argparse.Namespace) -> None:
        self.secured: Secured | None = None
        self._go, self._folder = _ready()
        self._given = given
        self.version = FranzGo.version()
        self.options = f"{given.records:,} records"

    def run(self, bootstrap: str, log: Path, again: Sequence[str] = ()) -> list[Outcome]:
        """As ``Suite.run``. ``log`` gets what the clients of the suite log."""
        given = self._given
        if again:
            return outcomes_of(self._events(bootstrap, log, pattern_of(again), ""), again)
        listed = [] if given.skip else self._listed(given.run)
        return outcomes_of(self._events(bootstrap, log, given.run, given.skip), listed)

    def _listed(self, pattern: str) -> list[str]:
        """Return the names of the tests that match."""
        command = [str(_binary(self._folder)), "-test.list", pattern or "."]
        printed = run_program(command, timeout_s=LIST_S).decode()
        return [line for line in printed.splitlines() if line.startswith("Test")]

    def _events(self, bootstrap: str, log: Path, pattern: str, skip: str) -> list[str]:
        """Run the tests that match. Return the events, one a line."""
        given = self._given
        environment = {
            **os.environ,
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": str(given.replicas),
            "KGO_TEST_RECORDS": str(given.records),
            **({} if self.secured is None else _login(self.secured)),
        }
        command = [str(_binary(self._folder)), "-test.v=test2json", f"-test.timeout={given.limit_s:.0f}s"]
        command += ["-test.run", pattern or "."] + (["-test.skip", skip] if skip else [])
        events = [self._go, "tool", "test2json", "-t", "-p", "kgo", *command]
        with log.open("ab") as errors:
            try:
                done = subprocess.run(
                    events,
                    env=environment,
                    cwd=self._folder / "source" / PACKAGE,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    timeout=given.limit_s + GRACE_S,
                    check=False,
                )
                printed = done.stdout
            except subprocess.TimeoutExpired as error:
                printed = error.stdout or b""
        return printed.decode(errors="replace").splitlines()


def _login(secured: Secured) -> dict[str, str]:
    """All tests take TLS; those of SCRAM dial a listener of their own, in clear."""
    access, cluster = secured.access, secured.cluster
    shown = {"ca": access.ca, "cert": access.certificate, "key": access.key}
    tls = ",".join(f"{name}:{path}" for name, path in shown.items() if path)
    return {
        **({"KGO_TEST_TLS": tls} if tls else {}),
        "KGO_TEST_SCRAM": f"{NODE}:{PASSWORD}",
        "KGO_TEST_SCRAM_SEEDS": cluster.at("CLEAR"),
    }


def _ready() -> tuple[str, Path]:
    """Return the Go client and the folder of the suite, after it was fetched and built where it wasn't yet.

    :raises NoSuiteError: there is no go, or it can't fetch or build the suite
    """
    go = go_program()
    if go is None:
        raise NoSuiteError("no go (1.26 or later) on the path")
    folder = cache_folder("kgo-suite") / FranzGo.version()
    if not _binary(folder).exists():
        try:
            _build(go, folder)
        except CheckFailed as failure:
            raise NoSuiteError(f"go: {failure}") from None
    return go, folder


def _binary(folder: Path) -> Path:
    return folder / "kgo.test"


def _build(go: str, folder: Path) -> None:
    """:raises CheckFailed: what go said"""
    said = run_program([go, "mod", "download", "-json", f"{MODULE}@v{folder.name}"], timeout_s=DOWNLOAD_S)
    source = folder / "source"
    # An earlier run may have ended in the middle of the copy.
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(said)["Dir"], source, copy_function=shutil.copyfile)
    _make_writable(source)
    made = folder / f"building.{os.getpid()}"
    run_program([go, "test", "-C", str(source), "-c", "-o", str(made), f"./{PACKAGE}"], timeout_s=BUILD_S)
    made.rename(_binary(folder))


def _make_writable(source: Path) -> None:
    for path in (source, *(candidate for candidate in source.rglob("*") if candidate.is_dir())):
        path.chmod(0o755)


def pattern_of(names: Sequence[str]) -> str:
    """Return the pattern that matches these tests and no other."""
    return f"^({'|'.join(names)})$"
