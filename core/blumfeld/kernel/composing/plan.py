"""The plan of a node: loaded plug-ins with decoded options, listeners, configuration. Making it opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from blumfeld.kernel.manifest.kafka_config import broker_config
from blumfeld.kernel.manifest.named import NamedPlugin, named_plugins
from blumfeld.kernel.manifest.rules import checked_listeners
from blumfeld.kernel.manifest.sections import NO_FILE, Manifest
from blumfeld.plugging.errors import Faults, ManifestError, Problem, shown
from blumfeld.plugging.plugins import PlannedPlugin
from blumfeld.plugging.registry import Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import PluginContractError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blumfeld.config.values import BrokerConfig

ARCHIVE_PACKAGE = "blumfeld-archive"
"""The distribution that brings the plug-in of ``[archive]``."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manifest that can be run. Plug-ins are in the order in which their parts are made."""

    manifest: Manifest
    source: str
    """The manifest's name in error messages."""
    registry: Registry
    plugins: tuple[PlannedPlugin, ...]
    listeners: tuple[Listener, ...]
    config: BrokerConfig
    """``[config]`` over Kafka's defaults, with the values of the manifest's own sections under Kafka's names."""
    quorum: bool = True
    """Whether the consensus has a metadata quorum."""
    left_out: tuple[str, ...] = ()
    """Places of the manifest that mean nothing without a quorum."""
    digest: str | None = None
    """``sha256:…`` of the manifest's bytes; ``None`` without a file."""
    build: str | None = None
    """Name of the artefact that the manifest came with."""

    def of_role(self, role: str) -> tuple[PlannedPlugin, ...]:
        """Returns the plug-ins of a section."""
        return tuple(plugin for plugin in self.plugins if plugin.role == role)


def make_plan(
    manifest: Manifest,
    source: str = NO_FILE,
    registry: Registry | None = None,
    faults: Faults | None = None,
    written: Manifest | None = None,
    *,
    digest: str | None = None,
    build: str | None = None,
) -> Plan:
    """Check a manifest as a whole, and load the plug-ins that it names.

    :param written: the manifest that ``manifest`` was derived from (``nodes = N``), if it was
    :param faults: what was wrong already when the manifest was read; it is told with what is wrong here
    :param digest: as of :class:`Plan`; so is ``build``
    :raises ManifestError: it can't be run as it is: nothing was opened. Every problem is told that can be seen before
        plug-ins make their parts
    :raises PluginContractError: an entry point names something that is no plug-in
    """
    faults = Faults(source) if faults is None else faults
    registry = Registry() if registry is None else registry
    quorum = _has_quorum(manifest, registry)
    left_out: tuple[str, ...] = ()
    if not quorum:
        from blumfeld.kernel.manifest.no_quorum import without_quorum

        manifest, left_out = without_quorum(manifest, written or manifest, faults)
    listeners = checked_listeners(manifest, faults, quorum=quorum)
    plugins = tuple(_Loader(manifest, registry, faults).load_all())
    config = broker_config(manifest, listeners, faults, _abilities(plugins))
    if "secures" in config.abilities:
        from blumfeld.kernel.manifest.security_protocols import with_protocols

        own = "controller" in manifest.node.roles or not quorum
        dialled = () if own else config.list("controller.listener.names")
        listeners = with_protocols(listeners, config, faults, dialled)
    faults.tell()
    return Plan(
        manifest=manifest,
        source=source,
        registry=registry,
        plugins=plugins,
        listeners=listeners,
        config=config,
        quorum=quorum,
        left_out=left_out,
        digest=digest,
        build=build,
    )


ABILITIES = {"storage": "tiers", "security": "secures", "quotas": "limits"}
"""Role → the attribute by which its plug-in's class says that the build can do more."""


def _abilities(plugins: Sequence[PlannedPlugin]) -> frozenset[str]:
    return frozenset(
        ability
        for plugin in plugins
        if (ability := ABILITIES.get(plugin.role)) and getattr(plugin.plugin_class, ability, False)
    )


def _has_quorum(manifest: Manifest, registry: Registry) -> bool:
    try:
        plugin_class = registry.load(manifest.consensus.plugin, "consensus", NO_FILE, "consensus.plugin")
    except (ManifestError, PluginContractError):
        return True  # the loader says what is wrong
    return bool(getattr(plugin_class, "quorum", True))


class _Loader:
    """Loads the plug-ins that a manifest names, role by role."""

    def __init__(self, manifest: Manifest, registry: Registry, faults: Faults) -> None:
        self.manifest = manifest
        self.registry = registry
        self.faults = faults

    def load_all(self) -> Iterator[PlannedPlugin]:
        """Yields the plug-ins that can be loaded, in the order in which parts are made."""
        # Where a section is wrong, a name in it is a default in place of what was meant. All are asked before one is
        # loaded: a plug-in of a list that is missing must not hide the next one.
        meant = [
            named for named in named_plugins(self.manifest) if self.faults.sound(named.path.partition("[")[0])
        ]
        for named in meant:
            if named.role == "storage":
                yield from self._storages(named)
            elif self._is_allowed(named):
                yield from self._load(named)

    def _is_allowed(self, named: NamedPlugin) -> bool:
        problem = None
        if named.role == "migration":
            problem = self._migration_problem(named)
        elif named.role == "sink" and named.name not in self.registry.names():
            mistake = f"a section of the package {ARCHIVE_PACKAGE}, which isn't installed"
            problem = Problem("archive", mistake, f"pip install {ARCHIVE_PACKAGE}, or no such section")
        if problem is not None:
            self.faults.add([problem])
        return problem is None

    def _storages(self, named: NamedPlugin) -> Iterator[PlannedPlugin]:
        """Yields the storages, the innermost one first. A storage wraps another if its options have a field
        ``local``."""
        section = self.manifest.storage
        for outer in self._load(named):
            inner = getattr(outer.options, "local", None)
            at, options_at = "storage.options.local", "storage.local_options"
            if not isinstance(inner, str):
                if section.local_options:
                    allowed = f"none: {section.plugin} wraps no other storage"
                    self.faults.add([Problem(options_at, "options", allowed)])
            elif inner == section.plugin:
                self.faults.add([Problem(at, shown(inner), "another storage than the one that wraps it")])
            elif self.faults.sound(at):
                wrapped = NamedPlugin("storage", inner, at, section.local_options, options_at)
                for plugin in self._load(wrapped):
                    yield msgspec.structs.replace(plugin, role="local_storage")
            yield outer

    def _migration_problem(self, named: NamedPlugin) -> Problem | None:
        """Says why a migration can't be. It is for controllers alone: a broker of the quorum reads no tree."""
        node = self.manifest.node
        if node.roles != ("controller",):
            found = f"a migration in a node with the roles {', '.join(node.roles)}"
            return Problem(
                "migration", found, 'node.roles = ["controller"], as in docs/zookeeper-migration.md'
            )
        if named.name == self.manifest.consensus.plugin:
            allowed = (
                "another plug-in than consensus.plugin: the cluster is brought from that one to this one"
            )
            return Problem(named.path, shown(named.name), allowed)
        return None

    def _load(self, named: NamedPlugin) -> Iterator[PlannedPlugin]:
        """Yields the plug-in; nothing if it can't be loaded or its options are wrong, which is a fault."""
        source = self.faults.source
        try:
            plugin_class = self.registry.load(named.name, named.role, source, named.path)
            decoded = decode_section(named.options, plugin_class.options_class, source, named.options_path)
        except ManifestError as error:
            self.faults.add(error.problems)
            return
        yield PlannedPlugin(
            role=named.role, name=named.name, path=named.path, plugin_class=plugin_class, options=decoded
        )
