"""A manifest written as TOML."""

from __future__ import annotations

import pytest

from blumfeld.kernel.manifest.as_toml import manifest_toml
from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("nodes=4",),
        ("node.rack=r", 'node.data_dirs=["/a b", "/ü\\"c"]', "metrics.bind=127.0.0.1:9100"),
        ('config."log.segment.bytes"=1048576', 'config."log.flush.interval.ms"=5', "logging.format=json"),
        ('config."x"="a\\u007fb\\n"',),
        ("groups.options.groups_classic.x=true", 'plugins.observers=["a"]'),
    ],
)
def test_a_manifest_as_toml_is_the_same_manifest(overrides: tuple[str, ...]) -> None:
    for manifest in node_manifests(read_manifest(None, overrides=overrides), "m"):
        assert read_manifest(manifest_toml(manifest)) == manifest
    assert manifest_toml(Manifest()) == "\n"
