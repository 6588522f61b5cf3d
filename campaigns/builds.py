"""The builds of examples/builds/: what each weighs, how it starts, what it loads, and whether clients use it.

``make wheels`` comes before it: the builds take their wheels from dist/, and no network. Each artefact is started by
its own launcher. For its modules it is started once more, by its own interpreter, which prints them when it ends.
With ``--archive`` the archive is built, too, and its Spark keeps what kcat has written.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from rich.table import Table

from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.published import PUBLISHED
from blumfeld.testing.process import LOOPBACK, NodeError, NodeProcess, free_port
from blumfeld_builder.wheels.requirements import plugins_of
from campaigns import artefacts, figures
from campaigns.clients.access import Access
from campaigns.clients.client import Client, NotOffered
from campaigns.clients.confluent import ConfluentKafka
from campaigns.clients.kcat import Kcat
from campaigns.clients.records import numbered_samples
from campaigns.clients.verdicts import CheckFailed
from campaigns.secured.identities import NODE, PASSWORD, make_users
from campaigns.terminal import console_of, print_wrong, refused

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / "examples" / "builds"
BYTES_MAX = {"smallest": 12_000_000}
"""Build → the most bytes that its file may have."""
ARCHIVE = "archive"
"""The build that takes minutes: 0.7 GB of wheels."""
ARCHIVE_SIGN = "pyspark-*.whl"
"""Without this in the folder of wheels the archive can't be built: ``make wheels`` leaves it out."""
NEVER_LOADED = (
    "typer",
    "rich",
    "pygments",
    "pydantic",
    "confluent_kafka",
    "pytest",
    "blumfeld_kit",
    "blumfeld_bench",
)
"""What no broker imports that runs and logs nothing."""
PORTS = 40
"""Ports in a row that a build may take: each node of several has its own ten."""
IDLE_S = 2.0
RECORDS = 1000
RECORD_BYTES = 100
START_TIMEOUT_S = {ARCHIVE: 300.0}
"""Build → longest time of its first start, in which it is unpacked; of the others see :class:`NodeProcess`."""
ASK_TIMEOUT_S = 300.0
"""Longest time of a command of an artefact, such as one that starts Spark."""

TELLS_MODULES = """
import sys
from blumfeld.cli.main import main
status = main(sys.argv[1:])
print("modules:", *sys.modules, flush=True)
sys.exit(status)
"""
TELLS_IMPORTABLE = """
import sys
from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if find_spec(name)))
"""


class Figures(msgspec.Struct):
    """What a build comes to."""

    name: str
    plugins: list[str]
    """Its plug-ins, sorted."""
    bytes: int = 0
    wheels: int = 0
    build_s: float = 0.0
    first_start_s: float = 0.0
    """With the unpacking of the artefact."""
    start_s: float = 0.0
    """Median of the later starts, to the ready line of each node."""
    rss_bytes: int = 0
    """Resident memory of all its processes, two seconds after the start."""
    modules: int = 0
    """Modules of one node that has served a client."""
    wrong: list[str] = []
    """Broken promises."""


class Build:
    """One manifest of examples/builds/, built and run in a folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.name = path.stem
        self.folder = folder / self.name
        self.folder.mkdir()
        self.manifest: Manifest = read_manifest(path.read_text(), str(path))
        plugins = plugins_of(node_manifests(self.manifest, str(path)))
        self.figures = Figures(self.name, sorted(plugin.name for plugin in plugins))
        self.access = Access()
        self.artefact = Path()
        """The file that runs, once it is built."""
        self._launches = 0

    @cached_property
    def left_out(self) -> list[str]:
        """Packages of Blumfeld's plug-ins that it doesn't name."""
        return [f"blumfeld_{name}" for name in sorted(PUBLISHED - set(self.figures.plugins))]

    def build(self) -> None:
        """Build it.

        :raises NotBuiltError: it can't be
        """
        began = time.monotonic()
        self.artefact = artefacts.build(self.path, self.folder / "out")
        self.figures.build_s = time.monotonic() - began
        self.figures.bytes = self.artefact.stat().st_size
        self.figures.wheels = len(list((self.folder / "out" / "wheels").iterdir()))

    def measure(self, rounds: int) -> None:
        """Start it so often after a first time, and let clients use it in the last round.

        :raises NodeError: it didn't start
        :raises CheckFailed: a client didn't get what it wrote
        """
        os.environ["PEX_ROOT"] = str(self.folder / "pex")
        starts = []
        for number in range(rounds + 1):
            with self.running([str(self.artefact)]) as node:
                starts.append(node.ready_s)
                if number == rounds:
                    time.sleep(IDLE_S)
                    self.figures.rss_bytes = rss_bytes(node.pid)
                    self.use(node.address, number)
                    if self.manifest.archive is not None:
                        self.keep(node.address, self.manifest.archive["topics"][0])
        self.figures.first_start_s, self.figures.start_s = starts[0], statistics.median(starts[1:])

    def use(self, bootstrap: str, number: int) -> None:
        """Each client writes records and reads them in a group of its own; librdkafka also in one of KIP-848."""
        clients: list[Client] = [ConfluentKafka(bootstrap), Kcat(bootstrap)]
        if "groups_kip848" in self.figures.plugins:
            clients.append(ConfluentKafka(bootstrap, "consumer"))
        samples = numbered_samples(RECORDS, 1, RECORD_BYTES)
        for client in clients:
            client.access = self.access
            topic = f"{client.name}-{client.protocol}-{number}"
            client.produce(topic, samples)
            got = client.consume(topic, f"readers-of-{topic}", RECORDS)
            if [record.value for record in got] != [sample.value for sample in samples]:
                raise CheckFailed(f"{client.name} ({client.protocol}) got other records than it wrote")

    def keep(self, bootstrap: str, topic: str) -> None:
        """Let kcat write to the archive's topic, and the artefact's own Spark put that into files."""
        samples = numbered_samples(RECORDS, 1, RECORD_BYTES)
        Kcat(bootstrap).produce(topic, samples)
        root = str(self.folder / "kept")
        once = ("--bootstrap", bootstrap, "--topics", topic, "--decoder", "raw", "--root", root)
        self._asked("archive", "once", *once)
        self._asked("archive", "verify", "--deep", "--root", root)
        query = "SELECT decode(value) AS value FROM raw ORDER BY k_offset"
        lines = self._asked("archive", "sql", "--json", "--root", root, query).splitlines()
        if [msgspec.json.decode(line)["value"].encode() for line in lines] != [s.value for s in samples]:
            raise CheckFailed(f"{len(lines)} records in the archive, other ones than kcat has written")

    def look(self) -> None:
        """See what one node of it loads, and what can be imported in it."""
        os.environ["PEX_INTERPRETER"] = "1"
        try:
            with self.running([str(self.artefact), "-c", TELLS_MODULES], one_node=True) as node:
                self.use(node.address, -1)
            importable = self._asked("-c", TELLS_IMPORTABLE, *self.left_out).split()
        finally:
            del os.environ["PEX_INTERPRETER"]
        lines = node.log_path.read_text().splitlines()
        told = next((line for line in lines if line.startswith("modules: ")), None)
        if told is None:
            raise CheckFailed("the node ended without a list of its modules")
        loaded = set(told.split()[1:])
        self.figures.modules = len(loaded)
        wrong = self.figures.wrong
        wrong += [f"{name} is left out, and can be imported" for name in importable]
        wrong += [f"{name} is loaded" for name in (*self.left_out, *NEVER_LOADED) if name in loaded]
        brought = {f"blumfeld_{name}" for name in self.figures.plugins if name in PUBLISHED - {"sink_spark"}}
        brought |= {name for name in map(package_of, self.manifest.build.requires) if name.startswith("acme")}
        wrong += [f"{name} is named, and wasn't loaded" for name in sorted(brought - loaded)]

    def _asked(self, *arguments: str) -> str:
        """Return what the artefact prints.

        :raises CheckFailed: it ends with an error
        """
        command = [str(self.artefact), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise CheckFailed(f"{' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    @contextmanager
    def running(self, command: Sequence[str], *, one_node: bool = False) -> Iterator[NodeProcess]:
        """The artefact while it runs, on data of its own; afterwards it must have ended in good order.

        :param one_node: instead of as many as the manifest says
        """
        self._launches += 1
        folder = self.folder / str(self._launches)
        folder.mkdir()
        port = free_port(PORTS)
        words = [*command, "run", "--listen", f"{LOOPBACK}:{port}"]
        for setting in self._settings(folder, port, one_node):
            words += ["--set", setting]
        serving = 1 if one_node else self.manifest.nodes
        node = Served(self.name, words, folder / "log", (LOOPBACK, port), serving)
        node.start_timeout_s = START_TIMEOUT_S.get(self.name, node.start_timeout_s)
        try:
            node.start()
            yield node
        finally:
            status = node.stop()
        if status or node.traceback():
            self.figures.wrong.append(f"ended with {status}: {node.printed()[-500:]}")

    def _settings(self, folder: Path, port: int, one_node: bool) -> Iterator[str]:
        """Yields what is laid over the manifest: places of this run."""
        manifest = self.manifest
        if manifest.node.data_dirs is not None:
            places = [str(folder / name) for name in manifest.node.data_dirs]
            yield f"node.data_dirs={msgspec.json.encode(places).decode()}"
        else:
            yield f'node.data_dir="{folder / "data"}"'
        if manifest.metrics.bind is not None:
            yield f'metrics.bind="{LOOPBACK}:{port + 5}"'
        if "store" in manifest.storage.options:
            yield f'storage.options.store="file://{folder / "store"}"'
        if manifest.security.plugin is not None:
            make_users(folder)
            self.access = Access(protocol="SASL_PLAINTEXT", mechanism="PLAIN", user=NODE, password=PASSWORD)
            for key in ("plain_users", "peer_login"):
                file = folder / str(manifest.security.options[key])
                yield f'security.options.{key}="{file}"'
        if one_node:
            # The first event that is logged brings structlog, and that rich: a busy machine is told of in one.
            yield 'logging.level="error"'
        if one_node and manifest.nodes > 1:
            yield "nodes=1"
            yield from (f'config."{key}"=1' for key in ONE_REPLICA)


ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
)


class Served(NodeProcess):
    """A node, or a supervisor of several, which is ready when each of them is."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, address: tuple[str, int], count: int
    ) -> None:
        super().__init__(name, command, log, address)
        self._sign = "ready on" if count == 1 else f"all {count} nodes serve"

    def answers(self) -> bool:
        """Whether it has said that all serve."""
        return self._sign in self.log_path.read_text(errors="replace")


def package_of(requirement: str) -> str:
    """Returns the package that a distribution of this repository or its examples holds."""
    return Requirement(requirement).name.replace("-", "_")


def rss_bytes(pid: int) -> int:
    """Returns the resident memory of a process and of all that it started."""
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return own + sum(rss_bytes(int(child)) for child in children)


def measured(path: Path, folder: Path, rounds: int) -> Figures:
    """Build a manifest, run it, and return what it comes to."""
    build = Build(path, folder)
    try:
        build.build()
        build.measure(rounds)
        build.look()
    except (artefacts.NotBuiltError, CheckFailed, NodeError, NotOffered, subprocess.TimeoutExpired) as error:
        build.figures.wrong.append(str(error))
    limit = BYTES_MAX.get(build.name)
    if limit is not None and build.figures.bytes > limit:
        build.figures.wrong.append(f"{build.figures.bytes:,} bytes, and {limit:,} are allowed")
    return build.figures


def table(rows: Sequence[Figures]) -> Table:
    """Returns the figures of all builds."""
    columns = ("MB", "wheels", "built in s", "first start s", "start s", "RSS MB", "modules")
    shown = figures.table("Builds of examples/builds/", ("build", "plug-ins", "clients"), columns)
    for row in rows:
        shown.add_row(
            row.name,
            ", ".join(row.plugins),
            "✗" if row.wrong else "✓",
            f"{row.bytes / 1e6:.1f}",
            str(row.wheels),
            f"{row.build_s:.0f}",
            f"{row.first_start_s:.2f}",
            f"{row.start_s:.2f}",
            f"{row.rss_bytes / 1e6:.0f}",
            str(row.modules),
        )
    return shown


HEAD = """\
| build | file | wheels | built | first start | start | resident, all processes | modules of a node |
|---|--:|--:|--:|--:|--:|--:|--:|"""


def page_text(page: str, rows: Sequence[Figures]) -> str:
    """Returns the page with the figures of these builds. Those of others stay as they are."""
    found = re.findall(r"^(\| ([\w-]+) \| [\d.]+ MB .*)$", page, flags=re.M)
    by_name = {name: line for line, name in found}
    for row in rows:
        by_name[row.name] = (
            f"| {row.name} | {row.bytes / 1e6:.1f} MB | {row.wheels} | {row.build_s:.0f} s | {row.first_start_s:.1f} s "
            f"| {row.start_s:.2f} s | {row.rss_bytes / 1e6:.0f} MB | {row.modules} |"
        )
    return figures.put_between(page, "\n".join([HEAD, *(by_name[name] for name in sorted(by_name))]))


def main() -> int:
    """Parse arguments, build and run each, print the table. Returns the exit status."""
    parser = figures.options("builds", __doc__, peer=False)
    parser.add_argument("--only", nargs="*", metavar="BUILD", help="names of manifests in examples/builds/")
    parser.add_argument("--archive", action="store_true", help="the archive, too: minutes, and 4 GB of disk")
    parser.add_argument("--page", type=Path, help="put the figures into this page, between its marks")
    options = parser.parse_args()
    if missing := artefacts.absent() or Kcat.absent():
        return refused("builds", missing)
    console = console_of()
    names = options.only or [path.stem for path in BUILDS.glob("*.toml") if path.stem != ARCHIVE]
    names += [ARCHIVE] if options.archive else []
    if ARCHIVE in names and not any(artefacts.WHEELS.glob(ARCHIVE_SIGN)):
        needed = "pip wheel --wheel-dir dist --find-links dist blumfeld-archive"
        return refused("builds", f"no wheels of the archive in {artefacts.WHEELS}: {needed}")
    manifests = [path for path in sorted(BUILDS.glob("*.toml")) if path.stem in names]
    with tempfile.TemporaryDirectory(prefix="blumfeld-builds-") as folder:
        rows = [measured(path, Path(folder), options.rounds) for path in manifests]
    console.print(table(rows))
    figures.save(options.out, rows)
    if options.page is not None:
        options.page.write_text(page_text(options.page.read_text(), rows))
    wrong = [f"{row.name}: {line}" for row in rows for line in row.wrong]
    print_wrong(console, wrong)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
