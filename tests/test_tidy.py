"""House rules that no linter knows. Each has its reason beside it, and its message names what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "blumfeld"

# A pure module must replay: no clock, no chance, no I/O. The driver has those.
PURE_ROOMS = ("wire", "config", "spi", "log", "metadata", "coordinator", "net", "client")
IMPURE_MODULES = {
    "asyncio": "return effects, or take a Completion",
    "anyio": "return effects, or take a Completion",
    "datetime": "take the time as an argument",
    "os": "ask Runtime.files",
    "pathlib": "ask Runtime.files",
    "random": "ask Runtime.random",
    "secrets": "ask Runtime.random",
    "selectors": "that is a transport's",
    "shutil": "ask Runtime.files",
    "socket": "that is a transport's",
    "tempfile": "ask Runtime.files",
    "threading": "use Runtime.offload",
    "time": "take the time as an argument",
    "uuid": "ask Runtime.new_uuid",
}

# What serves goes through the runtime seam, or the simulation is a lie. These stand on the edge of the world.
EDGE_MODULES = {
    "core/blumfeld/client/blocking_connection.py": "is the client's blocking socket",
    "core/blumfeld/client/asyncio_connection.py": "is the client on an asyncio loop",
    "core/blumfeld/net/readiness/selector.py": "stands in the place of a loop's selector",
    "core/blumfeld/net/readiness/sockets.py": "is the transports' sockets",
    "core/blumfeld/kernel/runtime/asyncio_runtime.py": "is the runtime",
    "core/blumfeld/kernel/runtime/process_ends.py": "looks at other processes",
    "core/blumfeld/kernel/runtime/real_files.py": "is the runtime's files",
    "core/blumfeld/kernel/watching/event_log.py": "stamps events for people, and imports structlog off the loop",
    "core/blumfeld/kernel/runtime/machine_memory.py": "asks how much memory there is",
    "core/blumfeld/kernel/watching/metrics_endpoint.py": "an HTTP port of its own",
    "core/blumfeld/kernel/watching/process_metrics.py": "asks what the process uses",
    "core/blumfeld/kernel/process.py": "signals, umask, the loop itself",
    "core/blumfeld/kernel/runtime/worker_main.py": "is a process of its own",
    "core/blumfeld/kernel/supervising/orphans.py": "asks the kernel for a signal",
    "core/blumfeld/kernel/supervising/supervisor.py": "starts processes, and never beside a node",
    "core/blumfeld/kernel/runtime/worker_process.py": "starts it, and waits for it in a thread",
    "plugins/consensus_zk_compat/blumfeld_consensus_zk_compat/zookeeper/kazoo_handler.py": "kazoo and its thread",
    "core/blumfeld/client/security/stores.py": "hands OpenSSL keys in memory",
    "plugins/security/blumfeld_security/tls/material.py": "counts processors",
    "plugins/security/blumfeld_security/commands.py": "the edge of a command: no node runs",
    "plugins/storage_tiered/blumfeld_storage_tiered/commands/opened.py": "the edge of a command: no node runs",
    "plugins/storage_tiered/blumfeld_storage_tiered/stores/aws_credentials.py": "tells obstore when keys are old",
    "plugins/storage_tiered/blumfeld_storage_tiered/stores/opening.py": "tells obstore how long to try",
}
EDGE_PLUGINS = {
    "net_asyncio": "sockets",
    "net_uring": "sockets, and the ring",
    "sink_spark": "Spark, files, object stores",
}

# Python raises these for mistakes of ours, too. What serves catches an error class that names one condition; where it
# catches one of these, the try block holds nothing but what the reason says.
RAISED_BY_MISTAKES = frozenset(
    {"ArithmeticError", "AttributeError", "IndexError", "KeyError", "LookupError", "TypeError", "ValueError"}
)
BROAD_EXCEPTS = {
    "plugins/storage_tiered/blumfeld_storage_tiered/commands/opened.py::asked_cluster": "parses an address",
    "core/blumfeld/broker/produce/straight.py::parse_prefix": "unpacks bytes that may be cut off",
    "core/blumfeld/broker/produce/straight.py::serve": "unpacks a frame that may be cut off",
    "core/blumfeld/broker/produce/straight.py::_otherwise": "unpacks a frame that may be cut off",
    "core/blumfeld/broker/replicas/state/transaction_index.py::_read": "decodes a file, which is made anew",
    "core/blumfeld/broker/serving/dispatch.py::request": "skips the tags of a header that may be cut off",
    "core/blumfeld/broker/upkeep/cleaner.py::_clean": "gives no answer: the log is left alone, and the error logged",
    "core/blumfeld/coordinator/groups/offset_values.py::decode_value": "the general codec decodes it again",
    "core/blumfeld/coordinator/runtime/record_runs.py::record_run": "the general walk reads it again",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/stored_state.py::load": "decodes the log at the start",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/stored_state.py::_newest_snapshot": "decodes a file at the start",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/quorum/snapshot_exchange.py::_fetched": "it is fetched anew",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/snapshot_download.py::finish": "raised again",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/snapshot_download.py::received": "raised again",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/snapshot_fetcher.py::_next_part": "raised again",
    "plugins/consensus_kraft/blumfeld_consensus_kraft/snapshot_fetcher.py::_run": "the snapshot is fetched anew",
    "plugins/security/blumfeld_security/tls/layer.py::step": "OpenSSL's own, and a host that is no name",
    "plugins/quotas/blumfeld_quotas/alter.py::_check_ip": "parses an address",
    "plugins/security/blumfeld_security/node_security.py::_refuse_open_controller": "parses an address",
    "plugins/security/blumfeld_security/sasl/bearer_tokens.py::_header": "decodes a token",
    "plugins/security/blumfeld_security/sasl/bearer_tokens.py::_key": "decodes a key",
    "plugins/security/blumfeld_security/sasl/bearer_tokens.py::read_keys": "decodes a document",
    "plugins/security/blumfeld_security/sasl/bearer_tokens.py::verified": "decodes a token: nobody enters by it",
    "plugins/security/blumfeld_security/sasl/issuer_keys.py::fetched": "reads a URL",
    "plugins/security/blumfeld_security/sasl/issuer_keys.py::_read": "decodes a document",
    "plugins/security/blumfeld_security/sasl/node_sasl.py::_issuer_keys": "parses a URL",
    "plugins/security/blumfeld_security/sasl/peer_login.py::read_login": "decodes a file",
    "plugins/security/blumfeld_security/sasl/plain_users.py::read_users": "decodes a file",
    "plugins/storage_local/blumfeld_storage_local/logs/aux_files.py::_discard": "pops from a list that may be empty",
    "plugins/storage_tiered/blumfeld_storage_tiered/cache/segment_bytes.py::_index": "the file is brought anew",
}

FUNCTION_LINES_MAX = 70  # TigerBeetle's limit; a longer function hides a second idea


def python_files(*roots: str) -> list[Path]:
    """All Python files below these folders of the project, sorted."""
    return sorted(path for root in roots for path in (ROOT / root).rglob("*.py"))


class Facts(NamedTuple):
    """What the rules ask of a module. The trees of all modules would take 300 MB, and to parse them anew for each rule
    a second each time.
    """

    imports: list[tuple[int, str]]
    """(line, module) of every import, also inside functions; not under TYPE_CHECKING."""
    opens: list[int]
    """The lines that call ``open()``."""
    broad: list[str]
    """The function of each handler that catches an error which Python raises for mistakes, too."""
    functions: list[tuple[int, str, int]]
    """(line, name, number of lines) of every function."""
    undocumented: list[str]
    """The module itself, and its public classes and functions, as far as they have no docstring."""


@cache
def facts_of(path: Path) -> Facts:
    """Parse the module, once."""
    source = path.read_text()
    tree = ast.parse(source)
    facts = Facts([], opens(tree) if "open(" in source else [], [], [], [])
    if not (ast.get_docstring(tree) or "").strip():
        facts.undocumented.append("the module")
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            facts.undocumented.append(f"{node.name} in line {node.lineno}")
    look_at(tree, facts, "", typing=False)
    return facts


def opens(tree: ast.AST) -> list[int]:
    """The lines that call ``open()``."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def look_at(node: ast.AST, facts: Facts, function: str, *, typing: bool) -> None:
    """Add what the statements within ``node`` say. Statements stand in no expression."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        here, only_types = function, typing
        if isinstance(child, ast.Import) and not typing:
            facts.imports.extend((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not typing:
            facts.imports.append((child.lineno, child.module))
        elif isinstance(child, ast.If):
            only_types = typing or "TYPE_CHECKING" in ast.dump(child.test)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            here = child.name
            facts.functions.append(
                (child.lineno, here, (child.end_lineno or child.lineno) - child.lineno + 1)
            )
        elif isinstance(child, ast.ExceptHandler) and child.type is not None:
            caught = {name.id for name in ast.walk(child.type) if isinstance(name, ast.Name)}
            if caught & RAISED_BY_MISTAKES:
                facts.broad.append(function)
        look_at(child, facts, here, typing=only_types)


def named(path: Path) -> str:
    """The path within the project."""
    return str(path.relative_to(ROOT))


def test_pure_rooms_read_no_clock_and_open_nothing() -> None:
    """wire, config, spi, log, metadata, coordinator and net import nothing that touches the world."""
    allowed = {("core/blumfeld/spi/completion.py", "asyncio"), ("core/blumfeld/spi/transport.py", "asyncio")}
    violations = [
        f"{named(path)}:{line} imports {module}: {IMPURE_MODULES[module.split('.')[0]]}"
        for path in python_files(*(f"core/blumfeld/{room}" for room in PURE_ROOMS))
        if named(path) not in EDGE_MODULES
        for line, module in facts_of(path).imports
        if module.split(".")[0] in IMPURE_MODULES and (named(path), module) not in allowed
    ]
    assert not violations, "\n".join(violations)


def test_nothing_serves_behind_the_runtimes_back() -> None:
    """broker, kernel and plug-ins ask the runtime for time, chance, files and threads; edge modules are listed."""
    forbidden = {
        "time",
        "random",
        "threading",
        "os",
        "socket",
        "shutil",
        "tempfile",
        "secrets",
        "uuid",
        "datetime",
    }
    violations = []
    for path in python_files("core/blumfeld/broker", "core/blumfeld/kernel", "plugins"):
        if named(path) in EDGE_MODULES or path.relative_to(ROOT).parts[1] in EDGE_PLUGINS:
            continue
        facts = facts_of(path)
        violations += [f"{named(path)}:{line} imports {m}" for line, m in facts.imports if m in forbidden]
        violations += [f"{named(path)}:{line} calls open(): ask Runtime.files" for line in facts.opens]
    assert not violations, "\n".join(violations)


def test_no_mistake_of_ours_gets_a_meaning_where_we_serve() -> None:
    """An IndexError of a read was a LookupError, and so an OFFSET_OUT_OF_RANGE: clients passed over records."""
    places = {
        f"{named(path)}::{function}"
        for path in python_files("core/blumfeld/broker", "core/blumfeld/coordinator", "plugins")
        if path.relative_to(ROOT).parts[1] != "sink_spark"
        for function in facts_of(path).broad
    }
    assert places == BROAD_EXCEPTS.keys()


def test_only_the_supervisor_imports_anyio() -> None:
    """Its import costs 17 to 45 ms, which a single node doesn't pay (ADR 0001, ADR 0031)."""
    paths = {
        named(path)
        for path in python_files("core", "plugins", "kit", "bench", "builder")
        for _, module in facts_of(path).imports
        if module.split(".")[0] == "anyio"
    }
    assert paths == {"core/blumfeld/kernel/supervising/supervisor.py"}


def test_every_edge_module_is_there() -> None:
    """The list of edge modules names only what exists."""
    missing = [name for name in EDGE_MODULES if not (ROOT / name).exists()]
    assert not missing, missing


def test_functions_stay_small() -> None:
    """A limit on length. Modules have none: a class cut in two to stay below one is worse."""
    violations = []
    for path in python_files("core", "plugins", "kit", "bench", "builder", "campaigns"):
        violations += [
            f"{named(path)}:{line} {name} has {length} lines"
            for line, name, length in facts_of(path).functions
            if length > FUNCTION_LINES_MAX
        ]
    assert not violations, "\n".join(violations)


def test_every_public_thing_says_what_it_guarantees() -> None:
    """Modules, public classes and public functions of core, plug-ins, kit, bench and campaigns have a docstring."""
    violations = [
        f"{named(path)} has no docstring of {name}"
        for path in python_files("core", "plugins", "kit", "bench", "builder", "campaigns")
        for name in facts_of(path).undocumented
    ]
    assert not violations, "\n".join(violations)


def test_no_init_file_where_a_folder_is_no_package() -> None:
    """An `__init__.py` in core/ would make mypy see `core.blumfeld`."""
    folders = [
        *(ROOT / name for name in ("core", "plugins", "kit", "bench", "builder")),
        *(p for p in (ROOT / "plugins").iterdir() if p.is_dir()),
    ]
    assert not [named(f) for f in folders if (f / "__init__.py").exists()]


def tracked_text_files() -> list[Path]:
    """What git tracks, less pictures and other binaries; everything on disk where there is no git."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [
        ROOT / n
        for n in listed.stdout.splitlines()
        if not n.endswith((".png", ".gz")) and (ROOT / n).is_file()
    ]


def test_tracked_files_name_no_registry_and_no_path_of_a_machine() -> None:
    """A fresh clone must work anywhere; a lock file or a log pasted in breaks that."""
    hosts = (
        "p" + "ypi.org",
        "python" + "hosted.org",
        "registry.n" + "pmjs",
        "/wo" + "rk/main",
        "/fa" + "rm/",
    )
    violations = [
        f"{named(path)} names {host}"
        for path in tracked_text_files()
        for host in hosts
        if host in path.read_text(errors="replace")
    ]
    assert not violations, "\n".join(violations)


def test_each_markdown_file_has_one_title() -> None:
    """One `#` heading, the first line."""
    violations = []
    for path in tracked_text_files():
        if path.suffix != ".md":
            continue
        fenced = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
        titles = re.findall(r"^# ", fenced, flags=re.M)
        if len(titles) != 1 or not fenced.startswith("# "):
            violations.append(named(path))
    assert not violations, violations
