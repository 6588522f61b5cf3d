"""docs/manifest.md has every key of the manifest, with its default, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from blumfeld.config.effects import effect_of
from blumfeld.config.values import BROKER_CONFIGS
from blumfeld.kernel.manifest.sections import ListenerSection, Manifest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "manifest.md").read_text()
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \|", re.MULTILINE)


def keys() -> Iterator[tuple[str, object]]:
    """(path, default) of every key."""
    for field in msgspec.structs.fields(Manifest):
        default = field.default
        if not isinstance(default, msgspec.Struct):
            yield field.name, None if field.name == "config" else default
            continue
        for inner in msgspec.structs.fields(type(default)):
            path = f"{field.name}.{inner.name}"
            yield path, inner.default
            if path == "network.listeners":
                yield from (
                    (f"{path}.{option.name}", None) for option in msgspec.structs.fields(ListenerSection)
                )


def test_every_key_is_documented_and_no_other() -> None:
    assert sorted(key for key, _ in ROW.findall(PAGE)) == sorted(key for key, _ in keys())


def test_the_defaults_are_the_manifests() -> None:
    documented = dict(ROW.findall(PAGE))
    for path, default in keys():
        if isinstance(default, (str, int)):
            assert str(default) in documented[path], path
        elif isinstance(default, tuple):
            assert all(f'"{item}"' in documented[path] for item in default), path


def test_kafkas_keys_that_the_sections_say_are_named() -> None:
    said = [key for key in BROKER_CONFIGS if effect_of(BROKER_CONFIGS[key]).section is not None]
    assert len(said) == 12
    assert all(f"`{key}`" in PAGE for key in said)
