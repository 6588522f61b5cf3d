"""Parse the variants to compare: manifests and foreign brokers. Everything is checked before a server starts.

- ``default``: no file, the built-in manifest
- ``A.toml``: a manifest; ``"A.toml --set network.plugin=net_uring --label ring"``: with overrides, by another name
- ``"kafka://127.0.0.1:0 --start 'kafka-peer start {folder}/data {port}'"``: a foreign broker, started in each round;
  ``--warm-up SECONDS``, ``--durability WORDS`` and ``--server-version V`` describe it
- either of these with ``--command-config FILE``: a client's properties for TLS and a login, as Kafka's tools take them
- either of these with ``--nodes 3``: a cluster of three nodes on loopback. A foreign broker's command is then run once
  for each node, and says where ``{id}``, ``{port}``, ``{controller_port}`` and ``{voters}`` go
- ``"kafka://127.0.0.1:9092 --running"``: a broker that runs already, with data of its own
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import attrs
import msgspec

from blumfeld import __version__
from blumfeld.client.security.command_config import CommandConfigError, open_secrets, read_command_config
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import NO_FILE, read_manifest
from blumfeld.kernel.node import Node
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.plugging.errors import Faults, ManifestError, file_problem
from blumfeld.testing.cluster import LOOPBACK, NODE_SETTINGS, filled, node_places
from blumfeld.wire.errors import PluginContractError
from blumfeld_bench.result import Result, Variant
from blumfeld_bench.security import security_at

DEFAULT = "default"
SCHEME = "kafka://"
FOREIGN_WARM_UP_S = 25.0
"""Warm-up of a foreign broker: a JVM needs it to compile. Without it Kafka reaches a sixth of its warm rate."""
NOT_KNOWN = "not known"
NODE_PLACES = ("{id}", "{port}")
"""Placeholders that the start command of a foreign cluster must have, so that no two nodes share an id or a port."""
DESCRIBED_PORT = 1024
"""Port of a cluster that is only described: nothing listens."""
MANIFEST_FILE = "manifest.toml"
"""Name of the manifest in a server's folder. It holds the text that was checked, even if the original file changed
since.
"""


class VariantError(Exception):
    """The variant can't be run. The message says what was found and what is allowed; nothing was started."""


@attrs.frozen
class VariantSpec:
    """One variant: everything that is needed to start it, now or again from a result file."""

    variant: Variant
    port: int = 0
    """Port of a foreign broker, or the first of a cluster's ports, two for each node; 0 takes free ones."""

    @property
    def label(self) -> str:
        """Name of the variant in the run."""
        return self.variant.label


def parse_variants(texts: Sequence[str]) -> tuple[VariantSpec, ...]:
    """Parse all variants of a run and make their labels unique: ``a``, ``a (2)``.

    :raises VariantError: for the first one that can't be run
    """
    specs = [parse_variant(text) for text in texts]
    taken: dict[str, int] = {}
    unique = []
    for spec in specs:
        taken[spec.label] = number = taken.get(spec.label, 0) + 1
        label = spec.label if number == 1 else f"{spec.label} ({number})"
        unique.append(attrs.evolve(spec, variant=msgspec.structs.replace(spec.variant, label=label)))
    if len({spec.label for spec in unique}) != len(unique):
        raise VariantError("two variants have the same --label; give each its own")
    return tuple(unique)


def parse_variant(text: str, label: str | None = None) -> VariantSpec:
    """Parse one variant. A manifest is loaded and planned as ``blumfeld run`` would; nothing is opened.

    :raises VariantError: the variant can't be run
    """
    try:
        given = _parser().parse_args(shlex.split(text))
    except ValueError as error:
        raise VariantError(f"{text!r}: {error}") from error
    except VariantError as error:
        raise VariantError(f"{text!r}: {error}") from error
    given.label = label or given.label
    if given.nodes < 1:
        raise VariantError(f"{text!r}: --nodes: found {given.nodes}; allowed: 1 and more")
    if given.command_config:
        given.command_config = _checked_login(text, given)
    if given.what.startswith(SCHEME):
        return _foreign(text, given)
    for option in ("start", "warm_up", "durability", "server_version"):
        if getattr(given, option) is not None:
            raise VariantError(f"{text!r}: --{option.replace('_', '-')} is for {SCHEME} variants only")
    if given.running:
        raise VariantError(f"{text!r}: --running is for {SCHEME} variants only")
    return _ours(text, given)


def specs_of(result: Result) -> tuple[VariantSpec, ...]:
    """Return the variants of a result, ready to run again. Manifests are the texts in the result, not the files.

    :raises VariantError: a manifest names a plug-in that isn't installed here
    """
    specs = []
    for variant in result.variants:
        if variant.kind == "manifest":
            checked = _described(variant.manifest, variant.overrides, variant.given, variant.nodes)
            variant = msgspec.structs.replace(
                variant,
                versions=checked.versions,
                network=checked.network,
                durability=checked.durability,
                command=(sys.executable, *variant.command[1:]),
            )
            specs.append(VariantSpec(variant))
        else:
            specs.append(VariantSpec(variant, _address(shlex.split(variant.given)[0])))
    return tuple(specs)


def _checked_login(text: str, given: argparse.Namespace) -> str:
    """Return the absolute path of the file of ``--command-config``, read now, and by each driver process again."""
    if given.nodes > 1 and not given.what.startswith(SCHEME):
        raise VariantError(
            f"{text!r}: --command-config: the bench gives each node of a cluster plain listeners"
        )
    path = str(Path(given.command_config).absolute())
    try:
        security_at(path)
    except CommandConfigError as error:
        raise VariantError(str(error)) from error
    if (warning := open_secrets(read_command_config(path, RealFiles()), RealFiles())) is not None:
        print(f"blumfeld: {warning}", file=sys.stderr)
    return path


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise VariantError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("what")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--label", "--name", dest="label")
    parser.add_argument("--start")
    parser.add_argument("--running", action="store_true")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--warm-up", type=float)
    parser.add_argument("--durability")
    parser.add_argument("--server-version")
    parser.add_argument("--command-config", default="")
    return parser


def _foreign(text: str, given: argparse.Namespace) -> VariantSpec:
    port = _address(given.what)
    command = tuple(shlex.split(given.start)) if given.start else ()
    lacks_port = bool(command) and port == 0 and not any("{port}" in part for part in command)
    lacks_places = not all(any(place in part for part in command) for place in NODE_PLACES)
    for wrong, said in (
        (given.set, "--set is for manifests only"),
        (
            (given.start is None) != given.running,
            "say how it is started, --start 'COMMAND {folder} {port}', so that each round has fresh data; or --running "
            "for one that runs already: then data isn't fresh, and what it uses isn't known",
        ),
        (
            given.running and given.nodes > 1,
            "--nodes is for servers that the bench starts; a running one has its nodes",
        ),
        (given.running and port == 0, "--running needs the broker's port in the address, not 0"),
        (lacks_port, "found no port; put {port} into the command, or a port into the address"),
        (
            given.nodes > 1 and lacks_places,
            f"--nodes runs the command once for each node; put {' and '.join(NODE_PLACES)} into it",
        ),
    ):
        if wrong:
            raise VariantError(f"{text!r}: {said}")
    label = given.label or (Path(command[0]).name if command else given.what.removeprefix(SCHEME))
    warm_up_s = given.warm_up if given.warm_up is not None else 0.0 if given.running else FOREIGN_WARM_UP_S
    return VariantSpec(
        Variant(
            label=label,
            kind="running" if given.running else "foreign",
            given=text,
            command=_absolute(command),
            nodes=given.nodes,
            warm_up_s=warm_up_s,
            versions={label: given.server_version} if given.server_version else {},
            network=NOT_KNOWN,
            durability=given.durability or NOT_KNOWN,
            command_config=given.command_config,
        ),
        port,
    )


def _absolute(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with a relative program path made absolute: each server runs in a folder of its own."""
    if command and "/" in command[0]:
        return (str(Path(command[0]).absolute()), *command[1:])
    return command


def _address(what: str) -> int:
    host, colon, port = what.removeprefix(SCHEME).rpartition(":")
    if not colon or host not in ("127.0.0.1", "localhost") or not port.isdigit() or int(port) > 65535:
        raise VariantError(f"found {what}; allowed: {SCHEME}127.0.0.1:PORT, where PORT 0 is any free one")
    return int(port)


def _ours(text: str, given: argparse.Namespace) -> VariantSpec:
    manifest = None if given.what == DEFAULT else _read(given.what)
    overrides = tuple(given.set)
    checked = _described(manifest, overrides, given.what if manifest is not None else NO_FILE, given.nodes)
    command = [sys.executable, "-m", "blumfeld.cli.main", "run"]
    command += ["{folder}/" + MANIFEST_FILE] if manifest is not None else []
    for override in (*overrides, *(NODE_SETTINGS if given.nodes > 1 else ())):
        command += ["--set", override]
    command += ["--data-dir", "{folder}/data"]
    command += ["--listen", "127.0.0.1:{port}"] if given.nodes == 1 else []
    return VariantSpec(
        Variant(
            label=given.label or _label(given.what, overrides, given.nodes),
            kind="manifest",
            given=text,
            manifest=manifest,
            overrides=overrides,
            command=tuple(command),
            nodes=given.nodes,
            warm_up_s=0.0,
            versions=checked.versions,
            network=checked.network,
            durability=checked.durability,
            command_config=given.command_config,
        )
    )


def _label(what: str, overrides: Sequence[str], nodes: int) -> str:
    """Return a label: the file's stem and the overrides. Plug-ins appear by value alone, other keys by their last part
    and value.
    """
    parts = [what if what == DEFAULT else Path(what).stem]
    for override in overrides:
        key, _, value = override.partition("=")
        short = key.split('"')[1] if '"' in key else key.rpartition(".")[2]
        parts.append(value.strip('"') if short == "plugin" else f"{short}={value}")
    parts += [f"nodes={nodes}"] if nodes > 1 else []
    return " ".join(parts)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VariantError(
            f"{path}: {file_problem(error).found}; allowed: a TOML file, {DEFAULT}, or {SCHEME}…"
        ) from error


@attrs.frozen
class _Description:
    versions: dict[str, str]
    network: str
    durability: str


def _described(manifest: str | None, overrides: Sequence[str], source: str, nodes: int) -> _Description:
    if nodes > 1:
        places = node_places([LOOPBACK] * nodes, DESCRIBED_PORT)
        overrides = [*overrides, *filled(NODE_SETTINGS, places[0], places, Path())]
    try:
        faults = Faults(source)
        read = read_manifest(manifest, source, overrides=overrides, listen="127.0.0.1:0", faults=faults)
        plan = make_plan(read, source, faults=faults)
        return asyncio.run(_describe(plan))
    except (ManifestError, PluginContractError) as error:
        raise VariantError(str(error)) from error


async def _describe(plan: Plan) -> _Description:
    """Describe a plan as ``blumfeld plan`` does: a node is made, and opens nothing."""
    async with short_lived_runtime() as runtime:
        composition = Node(plan, runtime, EventLogs(lambda: lambda *_: None)).composition
        return _Description(
            versions=_versions(plan),
            network=f"{plan.of_role('network')[0].name} ({composition.transport.driver()})",
            durability=f"acks=1: {composition.storage.promise()}; acks=all: {composition.replication.promise()}",
        )


def _versions(plan: Plan) -> dict[str, str]:
    versions = {"blumfeld": __version__, "python": sys.version.split()[0]}
    for plugin in plan.plugins:
        for origin in plan.registry.origins(plugin.name):
            versions[plugin.name] = str(origin)
    return versions
