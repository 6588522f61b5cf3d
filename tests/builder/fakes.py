"""Tiny wheels in place of Blumfeld's: a core that answers as an artefact must, and plug-ins without code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from blumfeld_builder.artefact.embedded import wheel_bytes

CORE_MAIN = """
import json, sys
from importlib.metadata import entry_points
from importlib.resources import files

def main():
    if sys.argv[1:2] == ["--version"]:
        return print("fake core")
    manifest = files("blumfeld_build").joinpath("manifest.toml").read_text()
    for point in entry_points(group="blumfeld.plugins"):
        try:
            point.load()
        except ImportError as error:
            sys.exit(f"blumfeld: built-in manifest: storage.plugin: found {point.name}: {error}")
    names = sorted(point.name for point in entry_points(group="blumfeld.plugins"))
    print(json.dumps({"plugins": names, "manifest": manifest}))

if __name__ == "__main__":
    main()
"""
ROLES = ("net_asyncio", "consensus_kraft", "replication_isr", "groups_classic", "storage_memory")
MANIFEST = """
storage.plugin = "storage_memory"
transactions.plugin = "none"
groups.plugins = ["groups_classic"]

[build]
wheels = ["wheels"]
"""
"""Names the plug-ins of :data:`ROLES`."""


def write_wheel(
    folder: Path,
    name: str,
    version: str = "0.1.0",
    *,
    requires: Sequence[str] = (),
    plugins: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
    python: str = "",
    kits: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense-Expression: Apache-2.0"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    metadata += [f"Requires-Python: {python}"] if python else []
    content = {f"{stem}/__init__.py": "class Plugin: ...\n", **(files or {})}
    content[f"{info}/METADATA"] = "\n".join(metadata) + "\n"
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    points = ""
    for group, entries in (("blumfeld.plugins", plugins), ("blumfeld.kits", kits)):
        if entries:
            points += f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
    if points:
        content[f"{info}/entry_points.txt"] = points
    path = folder / f"{stem}-{version}-{tag}.whl"
    path.write_bytes(wheel_bytes({key: text.encode() for key, text in content.items()}, info))
    return path


def write_plugin(
    folder: Path, plugin: str, distribution: str = "", version: str = "0.1.0", **more: object
) -> Path:
    """Write the wheel of one plug-in; of a bundled one, unless another distribution is named."""
    name = distribution or f"blumfeld-{plugin.replace('_', '-')}"
    stem = name.replace("-", "_")
    given: dict[str, object] = {
        "requires": ["blumfeld>=0.1,<0.2"],
        "plugins": {plugin: f"{stem}:Plugin"},
        **more,
    }
    return write_wheel(folder, name, version, **given)  # type: ignore[arg-type]


def write_core(folder: Path) -> Path:
    """Write the wheel of the core, which requires one small library."""
    write_wheel(folder, "tiny-library", "2.0")
    files = {"blumfeld/cli/__init__.py": "", "blumfeld/cli/main.py": CORE_MAIN}
    return write_wheel(folder, "blumfeld", requires=["tiny-library>=1"], files=files)


def make_workshop(folder: Path) -> Path:
    """Write a folder with ``broker.toml`` and all wheels that it needs. Returns the manifest's path."""
    write_core(folder / "wheels")
    for plugin in ROLES:
        write_plugin(folder / "wheels", plugin)
    manifest = folder / "broker.toml"
    manifest.write_text(MANIFEST)
    return manifest


def repack(distribution: str, folder: Path) -> Path:
    """Write the wheel of a distribution that is installed beside the tests, from its files."""
    installed = metadata.distribution(distribution)
    stem = f"{re.sub(r'[-_.]+', '_', installed.name).lower()}-{installed.version}"
    info = f"{stem}.dist-info"
    content: dict[str, bytes] = {}
    for file in installed.files or ():
        top = file.parts[0]
        if (
            top == ".."
            or file.suffix == ".pyc"
            or file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
        ):
            continue
        parts = (info, *file.parts[1:]) if top.endswith(".dist-info") else file.parts
        content["/".join(parts)] = Path(str(file.locate())).read_bytes()
    tags = re.findall("^Tag: (.*?)-(.*?)-(.*)$", content[f"{info}/WHEEL"].decode(), flags=re.M)
    tag = "-".join(
        ".".join(dict.fromkeys(part.strip() for part in parts)) for parts in zip(*tags, strict=True)
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    path.write_bytes(wheel_bytes(content, info))
    return path
