"""Which distributions a manifest needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from blumfeld.kernel.manifest.named import NamedPlugin, named_plugins
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.plugging.errors import Faults, Problem, shown
from blumfeld.plugging.published import distribution_of

CORE = "blumfeld"
WRAPPED = {"storage_tiered": "storage_local"}
"""Storage → the storage that it wraps where its options name none."""


class Wanted(msgspec.Struct, frozen=True):
    """A requirement, and the place in the manifest that it comes from."""

    requirement: Requirement
    path: str


def plugins_of(nodes: Sequence[Manifest]) -> list[NamedPlugin]:
    """Returns the plug-ins that the nodes of a manifest name, each once, with the storages that others wrap."""
    by_name: dict[str, NamedPlugin] = {}
    for node in nodes:
        for named in named_plugins(node):
            by_name.setdefault(named.name, named)
            inner = named.options.get("local", WRAPPED.get(named.name)) if named.role == "storage" else None
            if isinstance(inner, str):
                wrapped = NamedPlugin(
                    "storage",
                    inner,
                    "storage.options.local",
                    node.storage.local_options,
                    "storage.local_options",
                )
                by_name.setdefault(inner, wrapped)
    return list(by_name.values())


def wanted_by(manifest: Manifest, plugins: Sequence[NamedPlugin], faults: Faults) -> list[Wanted]:
    """Returns the core, the distributions of the bundled plug-ins, and ``build.requires``.

    :param faults: gets the requirements that are none
    """
    wanted = [Wanted(Requirement(CORE), "")]
    wanted += [
        Wanted(Requirement(name), plugin.path)
        for plugin in plugins
        if (name := distribution_of(plugin.name)) is not None
    ]
    return [*wanted, *_requires(manifest.build.requires, faults)]


def _requires(lines: Sequence[str], faults: Faults) -> Iterator[Wanted]:
    for nth, line in enumerate(lines):
        path = f"build.requires[{nth}]"
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            allowed = f'a requirement (PEP 508), as in "acme-storage >=1,<2": {str(error).splitlines()[0]}'
            faults.add([Problem(path, shown(line), allowed)])
            continue
        if requirement.url is not None:
            allowed = "a name with versions; the wheel itself is named in build.wheels"
            faults.add([Problem(path, f"{shown(line)}, which has an address", allowed)])
        else:
            yield Wanted(requirement, path)
