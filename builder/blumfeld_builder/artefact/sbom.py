"""The software bill of materials, in CycloneDX 1.6. It has no time and no place in it. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from blumfeld_builder.target import Target
from blumfeld_builder.wheels.wheel import Wheel

FILE = "sbom.cdx.json"
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
ROOT = "broker"


def sbom_text(wheels: Sequence[Wheel], lock: str, tool_version: str, target: Target) -> str:
    """Returns the bill of a build: a component for each wheel, with its hash and what it depends on."""
    names = {wheel.name: _purl(wheel) for wheel in wheels}
    document = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same lock gives the same number, which the format wants to be unique for each content.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, lock)}",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "blumfeld-builder", "version": tool_version}]
            },
            "component": {"type": "application", "bom-ref": ROOT, "name": ROOT},
            "properties": [{"name": "blumfeld:python", "value": target.python}],
        },
        "components": [_component(wheel) for wheel in wheels],
        "dependencies": [
            {"ref": ROOT, "dependsOn": sorted(names.values())},
            *({"ref": names[wheel.name], "dependsOn": _needed(wheel, names, target)} for wheel in wheels),
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _purl(wheel: Wheel) -> str:
    return f"pkg:pypi/{wheel.name}@{wheel.version}"


def _component(wheel: Wheel) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(wheel),
        "name": wheel.name,
        "version": wheel.version,
        "purl": _purl(wheel),
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
        "properties": [{"name": "blumfeld:wheel", "value": wheel.file}],
    }
    if wheel.plugins:
        component["properties"].append({"name": "blumfeld:plugins", "value": ", ".join(wheel.plugins)})
    if summary := wheel.metadata.get("Summary"):
        component["description"] = summary
    if expression := wheel.metadata.get("License-Expression"):
        component["licenses"] = [{"expression": expression}]
    elif (name := wheel.metadata.get("License", "")) and "\n" not in name:
        component["licenses"] = [{"license": {"name": name}}]
    return component


def _needed(wheel: Wheel, names: dict[str, str], target: Target) -> list[str]:
    needed = {
        names[name]
        for requirement in wheel.requires
        if (name := canonicalize_name(requirement.name)) in names
        and (requirement.marker is None or requirement.marker.evaluate({**target.markers, "extra": ""}))
    }
    return sorted(needed)
