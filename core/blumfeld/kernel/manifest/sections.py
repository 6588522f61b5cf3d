"""The manifest: what a node is composed of, as a person wrote it (TOML) and as values.

Reading it opens nothing and loads no plug-in. Every section has defaults, so no file at all is a sensible single node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld.plugging.sections import decode_section, parse_manifest

NO_FILE = "default manifest"
"""What errors call the manifest where there is no file."""

DEFAULT_DATA_DIR = "data"

NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the manifest: an unknown key is refused."""


class NodeSection(_Section, frozen=True):
    """``[node]``: who this node is."""

    id: NodeId = 1
    roles: tuple[str, ...] = ("broker", "controller")
    data_dir: str | None = None
    """Relative to the working directory of the process; ``"data"`` where neither this nor ``data_dirs`` is given."""
    data_dirs: tuple[str, ...] | None = None
    """Several log directories, instead of ``data_dir``: the first holds ``__cluster_metadata``."""
    cluster_id: str | None = None
    """``None``: what the directory was formatted with, or a new one."""
    rack: str | None = None

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories, however they were given: one at least in a manifest that can be run."""
        if self.data_dirs is not None:
            return self.data_dirs
        return (DEFAULT_DATA_DIR if self.data_dir is None else self.data_dir,)


class ListenerSection(_Section, frozen=True):
    """One of ``[network] listeners``."""

    name: str
    bind: str
    """``HOST:PORT``; port 0 is any free one; an IPv6 host stands in brackets."""
    kind: str = "broker"
    advertised: str | None = None
    """``HOST:PORT`` that clients are told; ``None`` is ``bind``."""
    inter_broker: bool = False
    """Other brokers come in by this one; if none says so, by the first broker listener."""


class NetworkSection(_Section, frozen=True):
    """``[network]``."""

    plugin: str = "net_asyncio"
    listeners: tuple[ListenerSection, ...] | None = None
    answer_memory_bytes_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Memory of unsent answers of all connections together; ``None`` fits the machine."""
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


class ReplicationSection(_Section, frozen=True):
    """``[replication]``."""

    plugin: str = "replication_isr"
    options: dict[str, Any] = {}


class GroupsSection(_Section, frozen=True):
    """``[groups]``: any number of group protocols, and plug-ins that bring assignors; ``options`` by plug-in name."""

    plugins: tuple[str, ...] = ("groups_classic", "groups_kip848")
    assignors: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = {}


class OptionalSection(_Section, frozen=True):
    """``[transactions]``, ``[security]``: roles that a node may leave empty."""

    plugin: str | None = None
    options: dict[str, Any] = {}


class PluginsSection(_Section, frozen=True):
    """``[plugins]``: what may be there beside the roles; ``options`` by plug-in name."""

    observers: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] = {}


class MetricsSection(_Section, frozen=True):
    """``[metrics]``."""

    bind: str | None = None
    """``HOST:PORT`` of the Prometheus and health endpoint; ``None`` is off."""


class LoggingSection(_Section, frozen=True):
    """``[logging]``."""

    format: str = "console"
    level: str = "info"


class Manifest(_Section, frozen=True):
    """All sections."""

    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Brokers that this process tree starts on one machine."""
    node: NodeSection = NodeSection()
    network: NetworkSection = NetworkSection()
    storage: StorageSection = StorageSection()
    consensus: ConsensusSection = ConsensusSection()
    replication: ReplicationSection = ReplicationSection()
    groups: GroupsSection = GroupsSection()
    transactions: OptionalSection = OptionalSection()
    security: OptionalSection = OptionalSection()
    plugins: PluginsSection = PluginsSection()
    metrics: MetricsSection = MetricsSection()
    logging: LoggingSection = LoggingSection()
    config: dict[str, Any] = {}
    """Kafka's own keys, flat."""
    archive: dict[str, Any] | None = None
    """What ``blumfeld archive`` reads; checked here as the options of the plug-in that brings it, and not used."""


def read_manifest(
    text: str | None,
    source: str = NO_FILE,
    *,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
) -> Manifest:
    """The manifest in ``text`` (``None``: no file) with the overrides of the command line.

    ``overrides`` are ``section.key=value`` (:func:`with_override`), in order; ``data_dir`` is the one log directory,
    whatever the file names; ``listen`` is the bind address of the first broker listener. Values are typed here; what
    they come to together, :mod:`blumfeld.kernel.composing.plan` checks.

    :raises ManifestError: no TOML, an unknown key, or a wrong type
    """
    raw = parse_manifest(text or "", source)
    for override in overrides:
        raw = with_override(raw, override)
    if data_dir is not None:
        raw = _in_directory(raw, data_dir)
    manifest = decode_section(raw, Manifest, source)
    return manifest if listen is None else _listening_at(manifest, listen, source)


def with_override(raw: Mapping[str, Any], override: str) -> dict[str, Any]:
    """``raw`` with one ``section.key=value`` laid over it.

    The key is a TOML key (``config."log.segment.bytes"``), the value a TOML value, or else a bare string. A table is
    merged, a list is replaced as a whole.

    :raises ManifestError: no ``=``, no TOML key before it, or one of Kafka's keys that isn't in ``config``
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
        return dict(raw)  # which is refused as it is
    node = {key: value for key, value in given.items() if key != "data_dirs"}
    return {**raw, "node": {**node, "data_dir": data_dir}}


DEFAULT_BROKER_BIND = "127.0.0.1:9092"
DEFAULT_CONTROLLER_BIND = "127.0.0.1:9093"


def listener_sections(manifest: Manifest) -> tuple[ListenerSection, ...]:
    """The listeners of the manifest, or those of the roles where it names none.

    A single voter is asked by nobody but itself, so a node with both roles opens no controller port of its own accord.
    """
    if manifest.network.listeners is not None:
        return manifest.network.listeners
    if "broker" in manifest.node.roles:
        return (ListenerSection(name="PLAINTEXT", bind=DEFAULT_BROKER_BIND, inter_broker=True),)
    return (ListenerSection(name="CONTROLLER", kind="controller", bind=DEFAULT_CONTROLLER_BIND),)


def _listening_at(manifest: Manifest, listen: str, source: str) -> Manifest:
    listeners = list(listener_sections(manifest))
    nth = next((n for n, listener in enumerate(listeners) if listener.kind == "broker"), None)
    if nth is None:
        problem = Problem("--listen", listen, "only with a listener of kind broker in the manifest")
        raise ManifestError(source, [problem])
    listeners[nth] = msgspec.structs.replace(listeners[nth], bind=listen)
    network = msgspec.structs.replace(manifest.network, listeners=tuple(listeners))
    return msgspec.structs.replace(manifest, network=network)
