"""The image: the base, and one layer with the unpacked wheels, their bytecode, and a folder for data."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from blumfeld_builder.artefact.deployment import USER_ID
from blumfeld_builder.oci.base import INDEX_TYPE, MANIFEST_TYPE, Base
from blumfeld_builder.oci.layers import MEDIA_TYPE, Layer, add_folder, add_tree, write_layer
from blumfeld_builder.target import Target
from blumfeld_builder.tools import run_program

FOLDER = "oci"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
HOME = "opt/blumfeld"
LIBRARY = f"{HOME}/lib"
DATA = "var/lib/blumfeld"
CREATED = "1980-01-01T00:00:00Z"


def compile_library(library: str, target: Target, work: str) -> None:
    """Write the bytecode of an unpacked library. It is never checked against times, which a layer doesn't keep."""
    compiled = [target.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    run_program([*compiled, "-s", library, "-p", f"/{LIBRARY}", library], "compileall", cwd=work)


def write_image(folder: str, base: Base, library: str, ports: Sequence[int], work: str) -> None:
    """Write the layout to ``folder``, which isn't there yet."""
    layer = write_layer(os.path.join(work, "image.tar.gz"), lambda tar: _fill(tar, library))
    blobs = os.path.join(folder, "blobs", "sha256")
    os.makedirs(blobs)
    for descriptor, path in base.layers:
        shutil.copyfile(path, os.path.join(blobs, str(descriptor["digest"]).partition(":")[2]))
    shutil.copyfile(layer.path, os.path.join(blobs, layer.digest.partition(":")[2]))
    config = _add_blob(blobs, CONFIG_TYPE, _config(base, layer, ports))
    own = {"mediaType": MEDIA_TYPE, "digest": layer.digest, "size": layer.size}
    layers = [*(descriptor for descriptor, _ in base.layers), own]
    image = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    described = _add_blob(blobs, MANIFEST_TYPE, image)
    described["platform"] = {"architecture": base.config["architecture"], "os": "linux"}
    described["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [described]}
    _write(os.path.join(folder, "index.json"), index)
    _write(os.path.join(folder, "oci-layout"), {"imageLayoutVersion": "1.0.0"})
    _readable(folder)


def _fill(tar: Any, library: str) -> None:
    for name in ("opt", HOME, LIBRARY):
        add_folder(tar, name)
    add_tree(tar, library, LIBRARY)
    add_folder(tar, DATA, owner=USER_ID)


def _config(base: Base, layer: Layer, ports: Sequence[int]) -> Mapping[str, Any]:
    inherited = base.config.get("config") or {}
    environment = [line for line in inherited.get("Env") or [] if not line.startswith("PYTHONPATH=")]
    config = {
        **inherited,
        "User": f"{USER_ID}:{USER_ID}",
        "Env": [*environment, f"PYTHONPATH=/{LIBRARY}"],
        "Entrypoint": [base.python, "-P", "-m", "blumfeld.cli.main"],
        "Cmd": ["run"],
        "WorkingDir": f"/{DATA}",
        "Volumes": {f"/{DATA}": {}},
        "ExposedPorts": {f"{port}/tcp": {} for port in ports},
        "StopSignal": "SIGTERM",
    }
    rootfs = base.config["rootfs"]
    return {
        **base.config,
        "created": CREATED,
        "config": config,
        "rootfs": {**rootfs, "diff_ids": [*rootfs["diff_ids"], layer.diff_id]},
        "history": [*base.config.get("history", []), {"created": CREATED, "created_by": "blumfeld build"}],
    }


def _add_blob(blobs: str, media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write a JSON blob, and return its descriptor."""
    data = msgspec.json.encode(content)
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(blobs, digest), "wb") as file:
        file.write(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _write(path: str, content: Mapping[str, Any]) -> None:
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(content))


def _readable(folder: str) -> None:
    for top, folders, files in os.walk(folder):
        os.chmod(top, 0o755)
        for name in files:
            os.chmod(os.path.join(top, name), 0o644)
        folders.sort()
