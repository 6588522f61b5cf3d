"""What differs between two builds. The reference is the default build; each case plants one difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blumfeld.kernel.description.differences import Difference, differences
from blumfeld.kernel.description.document import (
    ApiEntry,
    FeatureEntry,
    PlanDocument,
    PluginEntry,
    decode_document,
    encode_document,
)

BUILD = PlanDocument(
    version="0.1.0",
    spi="1.0",
    digest="sha256:c0de",
    build="ticks",
    manifest="sha256:aaaa",
    roles=("broker",),
    plugins=(
        PluginEntry(role="network", name="net_asyncio", distribution="blumfeld-net-asyncio", version="0.1.0"),
        PluginEntry(
            role="storage",
            name="acme",
            distribution="acme-storage",
            version="1.2",
            digest="sha256:1111",
            options={"verify": "read"},
            option_defaults={"cache_bytes": 1024},
        ),
    ),
    apis={
        "broker": (
            ApiEntry(key=0, name="Produce", min_version=0, max_version=13),
            ApiEntry(key=1, name="Fetch", min_version=4, max_version=18),
        )
    },
    acks={"0": "nothing", "1": "written: page cache", "all": "written by the ISR"},
    features=(FeatureEntry(name="group.version", min_level=0, max_level=1, default_level=1),),
    configuration={"log.segment.bytes": "1048576"},
    without_effect={"num.io.threads": "one thread serves all"},
    left_out=(),
    absent={"security": "everyone may do everything"},
    absent_apis=("SaslHandshake",),
    defaults={"num.partitions": "1"},
)


def with_plugin(**changes: Any) -> PlanDocument:
    storage = msgspec.structs.replace(BUILD.plugins[1], **changes)
    return msgspec.structs.replace(BUILD, plugins=(BUILD.plugins[0], storage))


def changed(**changes: Any) -> Callable[[], PlanDocument]:
    return lambda: msgspec.structs.replace(BUILD, **changes)


OBSERVER = PluginEntry(role="observers", name="audit", distribution="acme-audit", version="2.0")
FETCH = ApiEntry(key=1, name="Fetch", min_version=4, max_version=17)
GROUPS = FeatureEntry(name="group.version", min_level=0, max_level=1, default_level=0)

PLANTED: dict[str, tuple[Callable[[], PlanDocument], tuple[str, str, str, str]]] = {
    "another Blumfeld": (changed(version="0.2.0"), ("Blumfeld", "version", "0.1.0", "0.2.0")),
    "other code of one version": (
        changed(digest="sha256:0"),
        ("Blumfeld", "code", "sha256:c0de", "sha256:0"),
    ),
    "other roles": (
        changed(roles=("broker", "controller")),
        ("node", "roles", "broker", "broker, controller"),
    ),
    "a plug-in more": (
        changed(plugins=(*BUILD.plugins, OBSERVER)),
        ("plug-in", "observers audit", "–", "acme-audit 2.0"),
    ),
    "a plug-in's version": (
        lambda: with_plugin(version="1.3"),
        ("plug-in", "storage acme", "acme-storage 1.2", "acme-storage 1.3"),
    ),
    "a plug-in's code": (
        lambda: with_plugin(digest="sha256:2"),
        ("plug-in", "storage acme: code", "sha256:1111", "sha256:2"),
    ),
    "an option": (lambda: with_plugin(options={}), ("option", "storage acme: verify", '"read"', "–")),
    "an option's default": (
        lambda: with_plugin(option_defaults={"cache_bytes": 2048}),
        ("option", "storage acme: cache_bytes", "1024", "2048"),
    ),
    "an API less": (
        changed(apis={"broker": BUILD.apis["broker"][:1]}),
        ("API of brokers", "Fetch", "4–18", "–"),
    ),
    "an API's versions": (
        changed(apis={"broker": (BUILD.apis["broker"][0], FETCH)}),
        ("API of brokers", "Fetch", "4–18", "4–17"),
    ),
    "a listener of another kind": (
        changed(apis={**BUILD.apis, "controller": (FETCH,)}),
        ("API of controllers", "Fetch", "–", "4–17"),
    ),
    "a promise": (
        changed(acks={**BUILD.acks, "1": "written: memory"}),
        ("ack", "1", "written: page cache", "written: memory"),
    ),
    "a feature's level": (
        changed(features=(GROUPS,)),
        ("feature", "group.version", "0–1, new clusters 1", "0–1, new clusters 0"),
    ),
    "a feature less": (changed(features=()), ("feature", "group.version", "0–1, new clusters 1", "–")),
    "a value": (
        changed(configuration={"log.segment.bytes": "2"}),
        ("configuration", "log.segment.bytes", "1048576", "2"),
    ),
    "a key without effect": (
        changed(without_effect={}),
        ("without effect", "num.io.threads", "one thread serves all", "–"),
    ),
    "a part left out": (changed(left_out=("node.roles",)), ("left out", "node.roles", "–", "left out")),
    "a thing not done": (changed(absent={}), ("not done", "security", "everyone may do everything", "–")),
    "a default": (changed(defaults={"num.partitions": "3"}), ("default", "num.partitions", "1", "3")),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_each_planted_difference_is_found_and_named_alone(planted: str) -> None:
    make, expected = PLANTED[planted]
    assert differences(BUILD, make()) == [Difference(*expected)]
    part, name, first, second = expected
    assert differences(make(), BUILD) == [Difference(part, name, second, first)]


def test_equal_builds_differ_in_nothing_whatever_they_are_called() -> None:
    copy = decode_document(encode_document(BUILD))
    assert differences(BUILD, copy) == []
    renamed = msgspec.structs.replace(copy, build=None, manifest="sha256:bbbb")
    assert differences(BUILD, renamed) == []


def test_code_that_may_change_is_compared_with_nothing() -> None:
    assert differences(BUILD, with_plugin(digest=None)) == []


def test_several_differences_are_found_together() -> None:
    other = msgspec.structs.replace(BUILD, version="0.2.0", acks={}, defaults={})
    assert {found.part for found in differences(BUILD, other)} == {"Blumfeld", "ack", "default"}
