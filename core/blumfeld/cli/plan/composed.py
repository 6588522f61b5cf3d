"""The plans of a manifest's nodes."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.cli.built_in import build_name
from blumfeld.cli.manifest import manifest_file
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.plugging.errors import Faults


def composed(
    path: str | None,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    listen: str | None = None,
) -> list[Plan]:
    """Returns the plan of each node: one, or several with ``nodes = N``.

    :raises ManifestError: the manifest can't be run
    :raises PluginContractError: an entry point names something that is no plug-in
    """
    file = manifest_file(path)
    source, faults = file.source, Faults(file.source)
    written = read_manifest(
        file.text, source, overrides=overrides, data_dir=data_dir, listen=listen, faults=faults
    )
    return [
        make_plan(node, source, faults=faults, written=written, digest=file.digest, build=build_name())
        for node in node_manifests(written, source, faults)
    ]
