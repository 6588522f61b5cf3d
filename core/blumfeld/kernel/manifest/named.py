"""The plug-ins that a manifest names. None of them is looked for here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.kernel.manifest.sections import NO_PLUGIN, Manifest

ARCHIVE_PLUGIN = "sink_spark"
"""The plug-in whose options ``[archive]`` holds."""


class NamedPlugin(msgspec.Struct, frozen=True):
    """A plug-in's name in the manifest, and its options."""

    role: str
    name: str
    path: str
    """The place in the manifest that names it, such as ``groups.plugins[1]``."""
    options: Mapping[str, Any]
    options_path: str


def named_plugins(manifest: Manifest) -> Iterator[NamedPlugin]:
    """Yields the plug-ins of a node, in the order in which their parts are made.

    The storage that another one wraps is not among them: its name is an option of the other.
    """
    is_broker = "broker" in manifest.node.roles
    plugins, groups, security = manifest.plugins, manifest.groups, manifest.security
    yield from _one(manifest, "network")
    yield from _each("stores", "plugins.stores", plugins.stores, plugins.options)
    yield from _one(manifest, "storage")
    yield from _one(manifest, "migration")
    yield from _one(manifest, "consensus")
    if is_broker:
        yield from _one(manifest, "replication")
    yield from _one(manifest, "security")
    if security.authorizer is not None:
        name = security.authorizer
        options = security.plugin_options.get(name, {})
        path = f"security.plugin_options.{name}"
        yield NamedPlugin("authorizer", name, "security.authorizer", options, path)
    yield from _each(
        "authenticators",
        "security.authenticators",
        security.authenticators,
        security.plugin_options,
        "plugin_options",
    )
    yield from _one(manifest, "quotas")
    yield from _each("observers", "plugins.observers", plugins.observers, plugins.options)
    # A controller alone coordinates nothing, but it must know the features of groups and transactions: it finalizes
    # their levels.
    yield from _each("groups", "groups.plugins", groups.plugins, groups.options)
    if is_broker:
        yield from _each("assignors", "groups.assignors", groups.assignors, groups.options)
    yield from _one(manifest, "transactions")
    if manifest.archive is not None:
        yield NamedPlugin("sink", ARCHIVE_PLUGIN, "archive", manifest.archive, "archive")


def _one(manifest: Manifest, role: str) -> Iterator[NamedPlugin]:
    """Yields the plug-in of a section that has one; nothing for a role that is left empty."""
    section = getattr(manifest, role)
    if section.plugin is not None and section.plugin != NO_PLUGIN:
        yield NamedPlugin(role, section.plugin, f"{role}.plugin", section.options, f"{role}.options")


def _each(
    role: str,
    path: str,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    options_key: str = "options",
) -> Iterator[NamedPlugin]:
    """Yields the plug-ins of a list at ``path``, whose options stand beside it by name."""
    section = path.partition(".")[0]
    for nth, name in enumerate(names):
        yield NamedPlugin(
            role, name, f"{path}[{nth}]", options.get(name, {}), f"{section}.{options_key}.{name}"
        )
