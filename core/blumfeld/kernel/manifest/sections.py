"""The sections of the manifest (TOML), as values.

Reading it opens nothing and loads no plug-in. Every section has defaults, so no file at all is a sensible single node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from blumfeld.plugging.errors import Faults, ManifestError, Problem
from blumfeld.plugging.sections import decode_section, parse_manifest, variable_problems

NO_FILE = "default manifest"
"""Name of the manifest in error messages if there is no file."""

DEFAULT_DATA_DIR = "data"

NO_PLUGIN = "none"
"""Value that leaves a role empty, in place of a plug-in's name. TOML has no null."""

NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the manifest. Unknown keys are refused."""


class NodeSection(_Section, frozen=True):
    """``[node]``: the node's id, roles and directories."""

    id: NodeId = 1
    roles: tuple[str, ...] = ("broker", "controller")
    data_dir: str | None = None
    """Relative to the working directory of the process; ``"data"`` where neither this nor ``data_dirs`` is given."""
    data_dirs: tuple[str, ...] | None = None
    """Several log directories, instead of ``data_dir``: the first holds ``__cluster_metadata``."""
    cluster_id: str | None = None
    """``None``: the id that the directory was formatted with, or a new one."""
    rack: str | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories from ``data_dir`` or ``data_dirs``. A manifest that can be run has at least one."""
        if self.data_dirs is not None:
            return self.data_dirs
        return (DEFAULT_DATA_DIR if self.data_dir is None else self.data_dir,)


class ListenerSection(_Section, frozen=True):
    """One of ``[network] listeners``."""

    name: str
    bind: str
    """``HOST:PORT``. Port 0 takes any free port; an IPv6 host is written in brackets."""
    kind: str = "broker"
    advertised: str | None = None
    """``HOST:PORT`` that is sent to clients; ``None`` sends ``bind``."""
    inter_broker: bool = False
    """Other brokers connect to this listener. If none has it set, they use the first broker listener."""


class NetworkSection(_Section, frozen=True):
    """``[network]``."""

    plugin: str = "net_asyncio"
    listeners: tuple[ListenerSection, ...] | None = None
    answer_memory_bytes_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Bound on the memory of unsent answers, all connections together; ``None`` takes a share of the machine's
    memory."""
    options: dict[str, Any] = {}


class StorageSection(_Section, frozen=True):
    """``[storage]``. ``local_options`` go to the storage that ``options.local`` names, where the plug-in wraps one."""

    plugin: str = "storage_local"
    options: dict[str, Any] = {}
    local_options: dict[str, Any] = {}


class ConsensusSection(_Section, frozen=True):
    """``[consensus]``."""

    plugin: str = "consensus_kraft"
    options: dict[str, Any] = {}


class MigrationSection(_Section, frozen=True):
    """``[migration]``: of a controller that brings a cluster with a ZooKeeper to KRaft; empty for every other node."""

    plugin: str | None = None
    options: dict[str, Any] = {}


class ReplicationSection(_Section, frozen=True):
    """``[replication]``."""

    plugin: str = "replication_isr"
    options: dict[str, Any] = {}


class GroupsSection(_Section, frozen=True):
    """``[groups]``: any number of group protocols, and plug-ins that bring assignors; ``options`` by plug-in name."""

    plugins: tuple[str, ...] = ("groups_classic", "groups_kip848")
    assignors: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = {}


class TransactionsSection(_Section, frozen=True):
    """``[transactions]``."""

    plugin: str = "transactions"
    """:data:`NO_PLUGIN` leaves transactions out."""
    options: dict[str, Any] = {}


class SecuritySection(_Section, frozen=True):
    """``[security]``: a role that may be empty."""

    plugin: str | None = None
    options: dict[str, Any] = {}
    authorizer: str | None = None
    """A plug-in whose authorizer decides in place of that of ``plugin``."""
    authenticators: tuple[str, ...] = ()
    """Plug-ins that bring further SASL mechanisms."""
    plugin_options: dict[str, dict[str, Any]] = {}
    """Options of those plug-ins, by name."""


class QuotasSection(_Section, frozen=True):
    """``[quotas]``: a role that may be empty."""

    plugin: str | None = None
    options: dict[str, Any] = {}


class PluginsSection(_Section, frozen=True):
    """``[plugins]``: further plug-ins outside of the roles; ``options`` by plug-in name."""

    observers: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    """Plug-ins that bring object stores."""
    options: dict[str, dict[str, Any]] = {}


class MetricsSection(_Section, frozen=True):
    """``[metrics]``."""

    bind: str | None = None
    """``HOST:PORT`` of the Prometheus and health endpoint; ``None`` is off."""


class LoggingSection(_Section, frozen=True):
    """``[logging]``."""

    format: str = "console"
    level: str = "info"


class BuildSection(_Section, frozen=True):
    """``[build]``: for ``blumfeld build``. It has no effect on a broker that runs the manifest."""

    requires: tuple[str, ...] = ()
    """Requirements beside those of the bundled plug-ins (PEP 508): what brings the other ones, versions, extras."""
    wheels: tuple[str, ...] = ()
    """Folders of wheels, wheels, and folders of sources; relative to the manifest."""
    index: str | None = None
    """Address of an index of wheels. ``None``: only ``wheels`` are looked at."""
    python: str = "3.11"
    """Version of the interpreter that runs the build."""


class Manifest(_Section, frozen=True):
    """All sections."""

    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Number of brokers to start on this machine."""
    node: NodeSection = NodeSection()
    network: NetworkSection = NetworkSection()
    storage: StorageSection = StorageSection()
    consensus: ConsensusSection = ConsensusSection()
    migration: MigrationSection = MigrationSection()
    replication: ReplicationSection = ReplicationSection()
    groups: GroupsSection = GroupsSection()
    transactions: TransactionsSection = TransactionsSection()
    security: SecuritySection = SecuritySection()
    quotas: QuotasSection = QuotasSection()
    plugins: PluginsSection = PluginsSection()
    metrics: MetricsSection = MetricsSection()
    logging: LoggingSection = LoggingSection()
    build: BuildSection = BuildSection()
    config: dict[str, Any] = {}
    """Kafka's own keys, flat."""
    archive: dict[str, Any] | None = None
    """The section of ``blumfeld archive``. The kernel checks it as options of the plug-in that brings it, and
    does not use it.
    """


def read_manifest(
    text: str | None,
    source: str = NO_FILE,
    *,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
    faults: Faults | None = None,
) -> Manifest:
    """Returns the manifest in ``text`` (``None``: no file) with the overrides of the command line.

    Types are checked here. :mod:`blumfeld.kernel.composing.plan` checks whether the values fit together.

    :param overrides: ``section.key=value`` (:func:`with_override`), applied in order
    :param data_dir: the only log directory; it replaces those of the file
    :param listen: bind address of the first broker listener
    :param faults: gets the problems, instead of an error. Values that can't be used are left out of the manifest, so
        that the plan can tell what is wrong with the others. It raises the error then
    :raises ManifestError: invalid TOML; without ``faults`` also every unknown key, wrong type and variable
    """
    collected = Faults(source) if faults is None else faults
    raw = parse_manifest(text or "", source)
    for override in overrides:
        try:
            raw = with_override(raw, override)
        except ManifestError as error:
            collected.add(msgspec.structs.replace(problem, path="--set") for problem in error.problems)
    if data_dir is not None:
        raw = _in_directory(raw, data_dir)
    collected.add(variable_problems(raw))
    manifest = decode_section(raw, Manifest, source, faults=collected)
    if listen is not None:
        manifest = _listening_at(manifest, listen, collected)
    if faults is None:
        collected.tell()
    return manifest


def with_override(raw: Mapping[str, Any], override: str) -> dict[str, Any]:
    """Returns ``raw`` with one ``section.key=value`` applied.

    The key is a TOML key (``config."log.segment.bytes"``). The value is a TOML value, or else a bare string. A table is
    merged; a list is replaced as a whole.

    :raises ManifestError: there is no ``=``, or no TOML key before it, or it is a Kafka key outside of ``config``
    """
    import tomllib

    from blumfeld.config.values import BROKER_CONFIGS

    path, equals, value = override.partition("=")
    form = "section.key=value; a key with dots in it is quoted: 'config.\"log.segment.bytes\"=1048576'"
    if not equals or "\n" in override:
        raise ManifestError("--set", [Problem("", repr(override), form)])
    key = path.strip()
    if key in BROKER_CONFIGS and key.partition(".")[0] not in Manifest.__struct_fields__:
        raise ManifestError("--set", [Problem("", f"Kafka's {key}", f"'config.\"{key}\"={value}'")])
    try:
        changes = tomllib.loads(f"{path} = {value}")
    except tomllib.TOMLDecodeError:
        try:
            changes = tomllib.loads(f"{path} = {_toml_string(value)}")
        except tomllib.TOMLDecodeError as error:
            raise ManifestError("--set", [Problem("", f"{override!r} ({error})", form)]) from None
    return _merged(raw, changes)


def _toml_string(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def _in_directory(raw: Mapping[str, Any], data_dir: str) -> dict[str, Any]:
    given = raw.get("node", {})
    if not isinstance(given, Mapping):
        return dict(raw)  # decoding refuses it with a better error
    node = {key: value for key, value in given.items() if key != "data_dirs"}
    return {**raw, "node": {**node, "data_dir": data_dir}}


DEFAULT_BROKER_BIND = "127.0.0.1:9092"
DEFAULT_CONTROLLER_BIND = "127.0.0.1:9093"


def listener_sections(manifest: Manifest) -> tuple[ListenerSection, ...]:
    """Returns the listeners of the manifest, or if it has none, the default ones for the node's roles.

    A node with both roles opens no controller port by default: as the only voter it is asked by no other node.
    """
    if manifest.network.listeners is not None:
        return manifest.network.listeners
    if "broker" in manifest.node.roles:
        return (ListenerSection(name="PLAINTEXT", bind=DEFAULT_BROKER_BIND, inter_broker=True),)
    return (ListenerSection(name="CONTROLLER", kind="controller", bind=DEFAULT_CONTROLLER_BIND),)


def _listening_at(manifest: Manifest, listen: str, faults: Faults) -> Manifest:
    listeners = list(listener_sections(manifest))
    nth = next((n for n, listener in enumerate(listeners) if listener.kind == "broker"), None)
    if nth is None:
        if faults.sound("node.roles", "network.listeners"):
            faults.add([Problem("--listen", listen, "only with a listener of kind broker in the manifest")])
        return manifest
    listeners[nth] = msgspec.structs.replace(listeners[nth], bind=listen)
    network = msgspec.structs.replace(manifest.network, listeners=tuple(listeners))
    return msgspec.structs.replace(manifest, network=network)
