"""Differences between the variants of a run: the settings that a difference of the figures comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.config.values import BROKER_CONFIGS, ConfigError, parse, render
from blumfeld.kernel.manifest.sections import Manifest, with_override
from blumfeld.plugging.errors import ManifestError, shown
from blumfeld.plugging.sections import parse_manifest
from blumfeld_bench.result import Variant

NO_DIFFERENCE = (
    "The variants have the same settings, versions and number of nodes. What the figures say of a difference is noise "
    "of this machine."
)
NOT_GIVEN = "not given"


def differences(variants: Sequence[Variant]) -> list[str]:
    """Returns a line for each thing in which the variants differ, with each variant's value. The settings of a manifest
    stand under their paths, as ``--set`` takes them; a foreign broker's aren't known. Empty for a single variant.
    """
    if len(variants) < 2:
        return []
    facts = [dict(_facts(variant)) for variant in variants]
    lines = [
        _line(key, variants, facts)
        for key in dict.fromkeys(key for variant_facts in facts for key in variant_facts)
    ]
    ours = [variant for variant in variants if variant.kind == "manifest"]
    settings = [dict(_flat(_manifest(variant))) for variant in ours]
    for key in sorted({key for variant_settings in settings for key in variant_settings}):
        default = _default(key)
        values = [variant_settings.get(key, default) for variant_settings in settings]
        if len(ours) == 1:  # beside a foreign broker: whatever isn't as it comes
            lines += [f"{key} — {ours[0].label}: {values[0]}"] if values[0] != default else []
        elif len(set(values)) > 1:
            given = [value if value != default else f"{default} (the default)" for value in values]
            lines.append(_line(key, ours, [{key: value} for value in given]))
    return [line for line in lines if line] or [NO_DIFFERENCE]


def _line(key: str, variants: Sequence[Variant], facts: Sequence[Mapping[str, str]]) -> str:
    """Returns the values of one fact; empty if all variants have the same."""
    values = [variant_facts.get(key, "—") for variant_facts in facts]
    if len(set(values)) == 1:
        return ""
    said = (f"{variant.label}: {value}" for variant, value in zip(variants, values, strict=True))
    return f"{key} — {'; '.join(said)}"


def _facts(variant: Variant) -> Iterator[tuple[str, str]]:
    """Yields what a variant is beside its settings."""
    ours = variant.kind == "manifest"
    yield "server", "blumfeld run" if ours else " ".join(variant.command) or variant.given
    for name, version in variant.versions.items():
        if not ours or name in ("blumfeld", "python"):
            yield "version", f"{name} {version}" if name != variant.label else version
            break
    yield "nodes", str(variant.nodes)
    yield "extra warm-up", f"{variant.warm_up_s:g} s"


def _manifest(variant: Variant) -> Mapping[str, Any]:
    try:
        raw: Mapping[str, Any] = parse_manifest(variant.manifest or "", variant.label)
        for override in variant.overrides:
            raw = with_override(raw, override)
    except ManifestError:  # a result file of another release
        return {}
    return raw


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f'"{key}"' if path == "config" else key
        at = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from _flat(value, at)
        elif path == "config":
            yield at, _as_kafka(key, value)
        else:
            yield at, shown(value)


def _as_kafka(key: str, value: Any) -> str:
    try:
        defn = BROKER_CONFIGS.find(key)
        return str(render(defn, parse(defn, value)))
    except ConfigError:  # of another release
        return shown(value)


def _default(path: str) -> str:
    """Returns the value of a setting that isn't given; of a plug-in's options it isn't known here."""
    if path.startswith('config."'):
        defn = BROKER_CONFIGS.get(path.removeprefix('config."').removesuffix('"'))
        return NOT_GIVEN if defn is None else str(render(defn, defn.default))
    value: Any = msgspec.to_builtins(Manifest())
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return NOT_GIVEN if value is None else shown(value)
