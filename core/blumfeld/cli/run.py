"""``blumfeld run``: from a manifest to a running node. Imports no CLI, table or bench library."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from blumfeld import __version__
from blumfeld.cli.built_in import build_name
from blumfeld.cli.manifest import BAD_MANIFEST, NOT_STARTED, manifest_file, open_secrets
from blumfeld.config.addresses import address_text
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.process import Process
from blumfeld.kernel.watching.event_log import EventLogs, structlog_renderer
from blumfeld.plugging.errors import Faults, ManifestError
from blumfeld.wire.errors import PluginContractError

DIGEST_CHARS = len("sha256:") + 12
"""Characters of a digest on the ready line."""
_BORN = time.monotonic()


def run(arguments: Sequence[str]) -> int:
    """Run a node until SIGTERM or SIGINT.

    :return: 0 after a clean stop, 1 if the node could not start or a defect ended it, 2 if the manifest
        can't be run, or not on these directories and in this cluster
    """
    given = _parser().parse_args(arguments)
    try:
        forced = ["consensus.options.force_empty_metadata=true"] if given.force_empty_metadata else []
        file = manifest_file(given.manifest)
        source, faults = file.source, Faults(file.source)
        overrides = [*given.set, *forced]
        written = read_manifest(
            file.text,
            source,
            overrides=overrides,
            data_dir=given.data_dir,
            listen=given.listen,
            faults=faults,
        )
        manifest = written
        if given.node is not None:
            from blumfeld.kernel.supervising.derivation import node_manifest

            manifest = node_manifest(manifest, given.node, source, faults)
        elif manifest.nodes > 1:
            from blumfeld.cli.run_nodes import run_nodes

            return run_nodes(manifest, source, arguments, faults)
        plan = make_plan(
            manifest, source, faults=faults, written=written, digest=file.digest, build=build_name()
        )
    except (ManifestError, PluginContractError) as error:
        return _complain(str(error), BAD_MANIFEST)
    except StartError as error:
        return _complain(f"could not start: {error}", BAD_MANIFEST if error.is_final else NOT_STARTED)
    warning = open_secrets(given.manifest, manifest)
    if warning is not None:
        print(f"blumfeld: warning: {warning}", file=sys.stderr, flush=True)
    if given.supervisor is not None:
        from blumfeld.kernel.supervising.orphans import stop_with

        if not stop_with(given.supervisor):
            return NOT_STARTED
    logging = manifest.logging
    logs = EventLogs(structlog_renderer(logging.format), logging.level)
    try:
        return Process(plan, logs, say_ready).run()
    except StartError as error:
        return _complain(f"could not start: {error}", BAD_MANIFEST if error.is_final else NOT_STARTED)
    except (ManifestError, PluginContractError) as error:
        return _complain(str(error), BAD_MANIFEST)
    finally:
        logs.flush()


def say_ready(node: Node) -> None:
    """Print the ready line: addresses, start-up time in ms, plug-ins, the build or the manifest, the directories. A
    plug-in has its version where that isn't Blumfeld's.
    """
    where = ", ".join(f"{at.name} {address_text(at.host, at.port)}" for at in node.listeners)
    driver = node.composition.transport.driver()
    parts = [
        f"{_named(node, p.name)} ({driver})" if p.role == "network" else _named(node, p.name)
        for p in node.plan.plugins
    ]
    directories = " and ".join(node.composition.data_dirs)
    print(
        f"blumfeld {__version__} ready on {where} in {since_start_ms():.0f} ms:",
        f"{' + '.join(parts)}{_made_from(node.plan)}; node {node.composition.node_id}, data in {directories}",
        flush=True,
    )


def _named(node: Node, name: str) -> str:
    versions = [origin.version for origin in node.plan.registry.origins(name)]
    return name if versions == [__version__] else f"{name} {' and '.join(versions)}".rstrip()


def _made_from(plan: Plan) -> str:
    if plan.build is not None:
        return f"; build {plan.build}"
    return "" if plan.digest is None else f"; manifest {plan.digest[:DIGEST_CHARS]}"


def since_start_ms() -> float:
    """Milliseconds since the process started, interpreter included; without /proc, since the import of this
    module.
    """
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            started_ticks = int(file.read().rpartition(")")[2].split()[19])
        started_s = started_ticks / os.sysconf("SC_CLK_TCK")
        return (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000.0
    except (OSError, ValueError, IndexError, AttributeError):
        return (time.monotonic() - _BORN) * 1000.0


def _complain(message: str, status: int) -> int:
    for line in message.splitlines():
        print(f"blumfeld: {line}", file=sys.stderr, flush=True)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="blumfeld run", description="Run a broker; with no manifest, a single node on 127.0.0.1:9092."
    )
    parser.add_argument("manifest", nargs="?", metavar="MANIFEST", help="a TOML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="lay a value over the manifest; a key with dots is quoted: 'config.\"log.segment.bytes\"=1048576'",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="node.data_dir, and no node.data_dirs")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where the first broker listener binds")
    parser.add_argument(
        "--node",
        type=int,
        metavar="ID",
        help="with `nodes = N` in the manifest, run only the node with this id",
    )
    parser.add_argument("--supervisor", type=int, help=argparse.SUPPRESS)  # the process that starts this one
    parser.add_argument(
        "--force-empty-metadata",
        action="store_true",
        help="start a new cluster although logs of topics are there whose metadata is lost: they become …-stray",
    )
    return parser
