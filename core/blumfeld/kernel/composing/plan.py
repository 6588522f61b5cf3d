"""The plan of a node: loaded plug-ins with decoded options, listeners, configuration. Making it opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from blumfeld.kernel.identity import is_cluster_id
from blumfeld.kernel.manifest.kafka_config import broker_config
from blumfeld.kernel.manifest.rules import checked_listeners
from blumfeld.kernel.manifest.sections import NO_FILE, NO_PLUGIN, Manifest
from blumfeld.plugging.errors import ManifestError, Problem, shown
from blumfeld.plugging.plugins import PlannedPlugin
from blumfeld.plugging.registry import Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.transport import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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

    def of_role(self, role: str) -> tuple[PlannedPlugin, ...]:
        """Returns the plug-ins of a section."""
        return tuple(plugin for plugin in self.plugins if plugin.role == role)


def make_plan(manifest: Manifest, source: str = NO_FILE, registry: Registry | None = None) -> Plan:
    """Check a manifest as a whole, and load the plug-ins that it names.

    :raises ManifestError: it can't be run as it is: nothing was opened
    :raises PluginContractError: an entry point names something that is no plug-in
    """
    listeners = checked_listeners(manifest, source)
    cluster_id = manifest.node.cluster_id
    if cluster_id is not None and not is_cluster_id(cluster_id):
        allowed = "1 to 64 letters, digits, - and _; Kafka's own have 22"
        raise ManifestError(source, [Problem("node.cluster_id", shown(cluster_id), allowed)])
    config = broker_config(manifest, listeners, source)
    registry = Registry() if registry is None else registry
    plugins = tuple(_Loader(manifest, source, registry).load_all())
    return Plan(
        manifest=manifest,
        source=source,
        registry=registry,
        plugins=plugins,
        listeners=listeners,
        config=config,
    )


class _Loader:
    """Loads the plug-ins that a manifest names, role by role."""

    def __init__(self, manifest: Manifest, source: str, registry: Registry) -> None:
        self.manifest = manifest
        self.source = source
        self.registry = registry

    def load_all(self) -> Iterator[PlannedPlugin]:
        """Yields all plug-ins, in the order in which parts are made."""
        manifest = self.manifest
        yield self._one("network", manifest.network.plugin, manifest.network.options)
        yield from self._storages()
        yield self._one("consensus", manifest.consensus.plugin, manifest.consensus.options)
        is_broker = "broker" in manifest.node.roles
        if is_broker:
            yield self._one("replication", manifest.replication.plugin, manifest.replication.options)
        if manifest.security.plugin is not None:
            yield self._one("security", manifest.security.plugin, manifest.security.options)
        for nth, name in enumerate(manifest.plugins.observers):
            options = manifest.plugins.options.get(name, {})
            at, options_at = f"plugins.observers[{nth}]", f"plugins.options.{name}"
            yield self._one("observers", name, options, at=at, options_at=options_at)
        # A controller alone coordinates nothing, but it must know the features of groups and transactions: it finalizes
        # their levels.
        for nth, name in enumerate(manifest.groups.plugins):
            options = manifest.groups.options.get(name, {})
            at, options_at = f"groups.plugins[{nth}]", f"groups.options.{name}"
            yield self._one("groups", name, options, at=at, options_at=options_at)
        if is_broker:
            for nth, name in enumerate(manifest.groups.assignors):
                options = manifest.groups.options.get(name, {})
                at, options_at = f"groups.assignors[{nth}]", f"groups.options.{name}"
                yield self._one("assignors", name, options, at=at, options_at=options_at)
        if manifest.transactions.plugin != NO_PLUGIN:
            yield self._one("transactions", manifest.transactions.plugin, manifest.transactions.options)
        if manifest.archive is not None:
            if ARCHIVE_PLUGIN not in self.registry.names():
                found = f"a section of the package {ARCHIVE_PACKAGE}, which isn't installed"
                problem = Problem("archive", found, f"pip install {ARCHIVE_PACKAGE}, or no such section")
                raise ManifestError(self.source, [problem])
            yield self._one("sink", ARCHIVE_PLUGIN, manifest.archive, at="archive", options_at="archive")

    def _storages(self) -> Iterator[PlannedPlugin]:
        """Yields the storages, the innermost one first. A storage wraps another if its options have a field
        ``local``."""
        section = self.manifest.storage
        outer = self._one("storage", section.plugin, section.options)
        inner = getattr(outer.options, "local", None)
        if isinstance(inner, str):
            at, options_at = "storage.options.local", "storage.local_options"
            if inner == section.plugin:
                problem = Problem(at, shown(inner), "another storage than the one that wraps it")
                raise ManifestError(self.source, [problem])
            found = self._one("storage", inner, section.local_options, at=at, options_at=options_at)
            yield msgspec.structs.replace(found, role="local_storage")
        elif section.local_options:
            problem = Problem(
                "storage.local_options", "options", f"none: {section.plugin} wraps no other storage"
            )
            raise ManifestError(self.source, [problem])
        yield outer

    def _one(
        self, role: str, name: str, options: Mapping[str, Any], *, at: str = "", options_at: str = ""
    ) -> PlannedPlugin:
        path = at or f"{role}.plugin"
        plugin_class = self.registry.load(name, role, self.source, path)
        decoded = decode_section(
            options, plugin_class.options_class, self.source, options_at or f"{role}.options"
        )
        return PlannedPlugin(role=role, name=name, path=path, plugin_class=plugin_class, options=decoded)
