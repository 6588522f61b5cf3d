"""The differences of two builds, by their documents. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from blumfeld.kernel.description.document import ApiEntry, FeatureEntry, PlanDocument, PluginEntry
from blumfeld.kernel.description.text import versions_text

T = TypeVar("T")
NOT_THERE = "–"
"""Stands for what one of the builds doesn't have."""


class Difference(msgspec.Struct, frozen=True):
    """One thing that two builds don't have in common."""

    part: str
    """The part of the document: ``API``, ``plug-in``, ``ack``…"""
    name: str
    first: str
    second: str


def differences(first: PlanDocument, second: PlanDocument) -> list[Difference]:
    """Returns what differs, part by part. The names of build and manifest alone are no difference."""
    return [
        *_versions(first, second),
        *_plugins(first, second),
        *_apis(first, second),
        *_texts("ack", first.acks, second.acks),
        *_features(first, second),
        *_texts("configuration", first.configuration, second.configuration),
        *_texts("without effect", first.without_effect, second.without_effect),
        *_texts(
            "left out", dict.fromkeys(first.left_out, "left out"), dict.fromkeys(second.left_out, "left out")
        ),
        *_texts("not done", first.absent, second.absent),
        *_texts("default", first.defaults, second.defaults),
    ]


def _versions(first: PlanDocument, second: PlanDocument) -> Iterator[Difference]:
    yield from _value("Blumfeld", "version", first.version, second.version)
    yield from _value("Blumfeld", "spi", first.spi, second.spi)
    if first.version == second.version:
        yield from _code("Blumfeld", "code", first.digest, second.digest)
    yield from _value("node", "roles", ", ".join(first.roles), ", ".join(second.roles))


def _plugins(first: PlanDocument, second: PlanDocument) -> Iterator[Difference]:
    entries = [{f"{p.role} {p.name}": p for p in document.plugins} for document in (first, second)]

    def differ(name: str, mine: PluginEntry, other: PluginEntry) -> Iterator[Difference]:
        yield from _value("plug-in", name, _origin(mine), _origin(other))
        if mine.version == other.version:
            yield from _code("plug-in", f"{name}: code", mine.digest, other.digest)
        options = [_words({**p.option_defaults, **p.options}) for p in (mine, other)]
        yield from _texts("option", options[0], options[1], f"{name}: ")

    yield from _each("plug-in", entries[0], entries[1], _origin, differ)


def _origin(plugin: PluginEntry) -> str:
    return f"{plugin.distribution} {plugin.version}".rstrip()


def _words(options: Mapping[str, Any]) -> dict[str, str]:
    return {path: msgspec.json.encode(value).decode() for path, value in options.items()}


def _apis(first: PlanDocument, second: PlanDocument) -> Iterator[Difference]:
    for kind in dict.fromkeys((*first.apis, *second.apis)):
        entries = [{api.name: api for api in document.apis.get(kind, ())} for document in (first, second)]

        def differ(name: str, mine: ApiEntry, other: ApiEntry, kind: str = kind) -> Iterator[Difference]:
            yield from _value(f"API of {kind}s", name, _range(mine), _range(other))

        yield from _each(f"API of {kind}s", entries[0], entries[1], _range, differ)


def _range(api: ApiEntry) -> str:
    return versions_text(api.min_version, api.max_version)


def _features(first: PlanDocument, second: PlanDocument) -> Iterator[Difference]:
    entries = [{feature.name: feature for feature in document.features} for document in (first, second)]

    def differ(name: str, mine: FeatureEntry, other: FeatureEntry) -> Iterator[Difference]:
        yield from _value("feature", name, _levels(mine), _levels(other))

    yield from _each("feature", entries[0], entries[1], _levels, differ)


def _levels(feature: FeatureEntry) -> str:
    return f"{versions_text(feature.min_level, feature.max_level)}, new clusters {feature.default_level}"


def _each(
    part: str,
    first: Mapping[str, T],
    second: Mapping[str, T],
    shown: Callable[[T], str],
    differ: Callable[[str, T, T], Iterator[Difference]],
) -> Iterator[Difference]:
    for name in dict.fromkeys((*first, *second)):
        mine, other = first.get(name), second.get(name)
        if mine is not None and other is not None:
            yield from differ(name, mine, other)
        else:
            texts = [NOT_THERE if entry is None else shown(entry) for entry in (mine, other)]
            yield Difference(part, name, texts[0], texts[1])


def _texts(
    part: str, first: Mapping[str, str], second: Mapping[str, str], prefix: str = ""
) -> Iterator[Difference]:
    for name in dict.fromkeys((*first, *second)):
        yield from _value(part, prefix + name, first.get(name, NOT_THERE), second.get(name, NOT_THERE))


def _code(part: str, name: str, first: str | None, second: str | None) -> Iterator[Difference]:
    """Yields a difference of two digests. An editable installation has none, which says nothing of its code."""
    if first is not None and second is not None:
        yield from _value(part, name, first, second)


def _value(part: str, name: str, first: str, second: str) -> Iterator[Difference]:
    if first != second:
        yield Difference(part, name, first, second)
