"""Writes a manifest as TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from blumfeld.kernel.manifest.sections import Manifest


def manifest_toml(manifest: Manifest) -> str:
    """Return TOML that :func:`~blumfeld.kernel.manifest.sections.read_manifest` reads back as the same manifest.

    Sections at their defaults are left out.
    """
    lines = []
    for name, value in msgspec.to_builtins(manifest).items():
        if value is not None and value != msgspec.to_builtins(getattr(Manifest(), name)):
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_text(key)} = {_toml(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)  # numbers and booleans are written alike in both


def _text(value: str) -> str:
    """Return a basic string. TOML takes JSON's escapes, and forbids one more character than JSON: DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
