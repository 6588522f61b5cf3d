"""The plan of a node: loaded plug-ins with decoded options, listeners, configuration. Making it opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from blumfeld.kernel.manifest.kafka_config import broker_config
from blumfeld.kernel.manifest.rules import checked_listeners
from blumfeld.kernel.manifest.sections import NO_FILE, NO_PLUGIN, Manifest
from blumfeld.plugging.errors import Faults, ManifestError, Problem, shown
from blumfeld.plugging.plugins import PlannedPlugin
from blumfeld.plugging.registry import Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import PluginContractError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from blumfeld.config.values import BrokerConfig

ARCHIVE_PLUGIN = "sink_spark"
"""The plug-in whose options ``[archive]`` holds."""
ARCHIVE_PACKAGE = "blumfeld-archive"
"""The distribution that brings it."""


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

    def of_role(self, role: str) -> tuple[PlannedPlugin, ...]:
        """Returns the plug-ins of a section."""
        return tuple(plugin for plugin in self.plugins if plugin.role == role)


def make_plan(
    manifest: Manifest,
    source: str = NO_FILE,
    registry: Registry | None = None,
    faults: Faults | None = None,
    written: Manifest | None = None,
) -> Plan:
    """Check a manifest as a whole, and load the plug-ins that it names.

    :param written: the manifest that ``manifest`` was derived from (``nodes = N``), if it was
    :param faults: what was wrong already when the manifest was read; it is told with what is wrong here
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

        listeners = with_protocols(listeners, config, faults)
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
        manifest = self.manifest
        yield from self._one("network", manifest.network.plugin, manifest.network.options)
        plugins, groups = manifest.plugins, manifest.groups
        yield from self._each("stores", "plugins.stores", plugins.stores, plugins.options)
        yield from self._storages()
        yield from self._migration()
        yield from self._one("consensus", manifest.consensus.plugin, manifest.consensus.options)
        is_broker = "broker" in manifest.node.roles
        if is_broker:
            yield from self._one("replication", manifest.replication.plugin, manifest.replication.options)
        yield from self._security()
        if manifest.quotas.plugin is not None:
            yield from self._one("quotas", manifest.quotas.plugin, manifest.quotas.options)
        yield from self._each("observers", "plugins.observers", plugins.observers, plugins.options)
        # A controller alone coordinates nothing, but it must know the features of groups and transactions: it finalizes
        # their levels.
        yield from self._each("groups", "groups.plugins", groups.plugins, groups.options)
        if is_broker:
            yield from self._each("assignors", "groups.assignors", groups.assignors, groups.options)
        if manifest.transactions.plugin != NO_PLUGIN:
            section = manifest.transactions
            yield from self._one("transactions", section.plugin, section.options)
        if manifest.archive is not None:
            if ARCHIVE_PLUGIN not in self.registry.names():
                mistake = f"a section of the package {ARCHIVE_PACKAGE}, which isn't installed"
                self.faults.add(
                    [Problem("archive", mistake, f"pip install {ARCHIVE_PACKAGE}, or no such section")]
                )
                return
            yield from self._one("sink", ARCHIVE_PLUGIN, manifest.archive, at="archive", options_at="archive")

    def _each(
        self, role: str, at: str, names: Sequence[str], options: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[PlannedPlugin]:
        """Yields the plug-ins of a list at ``at``, whose options stand beside it by name."""
        if not self.faults.sound(at):
            return
        section = at.partition(".")[0]
        for nth, name in enumerate(names):
            options_at = f"{section}.options.{name}"
            yield from self._one(role, name, options.get(name, {}), at=f"{at}[{nth}]", options_at=options_at)

    def _security(self) -> Iterator[PlannedPlugin]:
        section = self.manifest.security
        if section.plugin is not None:
            yield from self._one("security", section.plugin, section.options)
        at, options = "security.authorizer", section.plugin_options
        if section.authorizer is not None and self.faults.sound(at):
            name = section.authorizer
            options_at = f"security.plugin_options.{name}"
            yield from self._one("authorizer", name, options.get(name, {}), at=at, options_at=options_at)
        for nth, name in enumerate(section.authenticators):
            at, options_at = f"security.authenticators[{nth}]", f"security.plugin_options.{name}"
            yield from self._one("authenticators", name, options.get(name, {}), at=at, options_at=options_at)

    def _storages(self) -> Iterator[PlannedPlugin]:
        """Yields the storages, the innermost one first. A storage wraps another if its options have a field
        ``local``."""
        section = self.manifest.storage
        for outer in self._one("storage", section.plugin, section.options):
            inner = getattr(outer.options, "local", None)
            at, options_at = "storage.options.local", "storage.local_options"
            if not isinstance(inner, str):
                if section.local_options:
                    allowed = f"none: {section.plugin} wraps no other storage"
                    self.faults.add([Problem(options_at, "options", allowed)])
            elif inner == section.plugin:
                self.faults.add([Problem(at, shown(inner), "another storage than the one that wraps it")])
            else:
                for plugin in self._one(
                    "storage", inner, section.local_options, at=at, options_at=options_at
                ):
                    yield msgspec.structs.replace(plugin, role="local_storage")
            yield outer

    def _migration(self) -> Iterator[PlannedPlugin]:
        """Yields the plug-in of ``[migration]``. It is for controllers alone: a broker of the quorum reads no tree."""
        section, node = self.manifest.migration, self.manifest.node
        if section.plugin is None:
            return
        if node.roles != ("controller",):
            found = f"a migration in a node with the roles {', '.join(node.roles)}"
            self.faults.add(
                [
                    Problem(
                        "migration", found, 'node.roles = ["controller"], as in docs/zookeeper-migration.md'
                    )
                ]
            )
        elif section.plugin == self.manifest.consensus.plugin:
            allowed = (
                "another plug-in than consensus.plugin: the cluster is brought from that one to this one"
            )
            self.faults.add([Problem("migration.plugin", shown(section.plugin), allowed)])
        else:
            yield from self._one("migration", section.plugin, section.options)

    def _one(
        self, role: str, name: str, options: Mapping[str, Any], *, at: str = "", options_at: str = ""
    ) -> Iterator[PlannedPlugin]:
        """Yields the plug-in; nothing if it can't be loaded or its options are wrong, which is a fault."""
        path = at or f"{role}.plugin"
        source = self.faults.source
        if not self.faults.sound(path):
            return  # the name is a default in place of what was meant
        try:
            plugin_class = self.registry.load(name, role, source, path)
            decoded = decode_section(
                options, plugin_class.options_class, source, options_at or f"{role}.options"
            )
        except ManifestError as error:
            self.faults.add(error.problems)
            return
        yield PlannedPlugin(role=role, name=name, path=path, plugin_class=plugin_class, options=decoded)
