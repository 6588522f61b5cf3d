"""The document of a plan."""

from __future__ import annotations

import json
from typing import Literal

import msgspec
import pytest

from blumfeld.kernel.description.document import (
    FORMAT,
    HIDDEN,
    ApiEntry,
    FeatureEntry,
    PluginEntry,
    decode_document,
    encode_document,
)
from blumfeld.spi.hooks import Feature
from tests.kernel.fakes import FakeStorage, bringing, document, plan_of, storage

CONFIG = """
[config]
"log.segment.bytes" = 1048576
"log.retention.hours" = 168
"auto.create.topics.enable" = false
"""


class Inner(msgspec.Struct, frozen=True):
    """Options within options."""

    requests: int = 4
    token: str = ""


class Options(msgspec.Struct, frozen=True):
    """Options of each kind."""

    store: str = "file:///tmp"
    verify: Literal["size", "read"] = "size"
    cache_bytes: int = 1024
    prices: dict[str, float] = {}
    inner: Inner = Inner()


STORAGE = storage(lambda composition: FakeStorage("storage", composition.options), Options)
FEATURE = bringing("blumfeld_features", Feature("acme.version", 0, 3, 2))


def test_the_document_survives_its_json() -> None:
    made = document(plan_of(text=CONFIG))
    assert decode_document(encode_document(made)) == made
    assert json.loads(encode_document(made))["format"] == FORMAT


def test_a_plan_says_its_parts_apis_promises_and_features() -> None:
    made = document(plan_of('groups.assignors=["acme"]', acme=f"{__name__}:FEATURE"))
    assert [(plugin.role, plugin.name) for plugin in made.plugins][:2] == [
        ("network", "net_fake"),
        ("storage", "storage_fake"),
    ]
    assert made.apis["broker"] == (
        ApiEntry(key=0, name="Produce", min_version=0, max_version=13),
        ApiEntry(key=18, name="ApiVersions", min_version=0, max_version=4),
    )
    assert made.acks["1"] == "written: what storage promises"
    assert FeatureEntry(name="acme.version", min_level=0, max_level=3, default_level=2) in made.features
    assert made.absent["compaction"].startswith("a topic with cleanup.policy=compact keeps every record")
    assert "Fetch" in made.absent_apis
    assert made.defaults["log.segment.bytes"] == "1073741824"


def test_a_value_that_is_kafkas_default_is_no_configuration() -> None:
    made = document(plan_of(text=CONFIG))
    assert made.configuration == {"auto.create.topics.enable": "false", "log.segment.bytes": "1048576"}


def test_places_of_the_node_are_not_in_its_document() -> None:
    here = document(plan_of('node.data_dir="/a"', listen="127.0.0.1:7"))
    there = document(plan_of('node.data_dir="/b"', "node.id=1", listen="127.0.0.1:9"))
    assert here == there


def test_options_are_told_without_texts_that_may_be_secrets_or_places() -> None:
    given = ("storage.plugin=acme", "storage.options.store=s3://me:pass@x", "storage.options.verify=read")
    more = (
        "storage.options.inner.token=abc",
        "storage.options.cache_bytes=7",
        "storage.options.prices.a=1.5",
    )
    made = document(plan_of(*given, *more, acme=f"{__name__}:STORAGE"))
    [entry] = [plugin for plugin in made.plugins if plugin.role == "storage"]
    assert isinstance(entry, PluginEntry)
    assert entry.options == {
        "store": HIDDEN,
        "verify": "read",
        "cache_bytes": 7,
        "prices": HIDDEN,
        "inner.token": HIDDEN,
    }
    assert entry.option_defaults == {"inner.requests": 4}
    assert b"pass" not in encode_document(made)


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="no plan: "):
        decode_document(b"{}")
    later = encode_document(document(plan_of())).replace(b'"format":1', b'"format":2')
    with pytest.raises(ValueError, match="a plan of format 2, and this Blumfeld reads up to 1"):
        decode_document(later)
    assert decode_document(later.replace(b'"format":2', b'"format":1,"new":[]'))
