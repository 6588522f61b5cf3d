"""The base of an image: another layout, or a folder with a root file system. It brings the interpreter."""

from __future__ import annotations

import os
import platform
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld_builder.oci.layers import MEDIA_TYPE, Layer, add_rootfs, names_in, write_layer

OPTION = "--base"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHON_FOLDERS = ("usr/local/bin", "usr/bin", "bin")


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """What an image stands on."""

    config: Mapping[str, Any]
    """The image configuration: ``config``, ``rootfs``, ``history``, ``architecture``, ``os``."""
    layers: Sequence[tuple[Mapping[str, Any], str]]
    """Each layer's descriptor, and the path of its blob."""
    python: str
    """Path of the interpreter in the image."""


def architecture() -> str:
    """Returns this machine's architecture as OCI names it."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def read_base(path: str, python: str, work: str) -> Base:
    """Returns the base at a path.

    :param python: the version of the interpreter that must be in it
    :raises ManifestError: it is neither a layout nor a root file system, of another platform, or has no such Python
    """
    if os.path.isfile(os.path.join(path, "oci-layout")):
        try:
            base = _read_layout(path)
        except KeyError as error:
            raise _refused(path, f"in which {error} is missing", "a whole layout") from None
        names = {name for _, blob in base.layers for name in _names_in(path, blob)}
    elif os.path.isdir(path):
        layer = write_layer(os.path.join(work, "base.tar.gz"), lambda tar: add_rootfs(tar, path))
        base = _of_rootfs(layer)
        names = {f"{folder}/python{python}" for folder in PYTHON_FOLDERS if _holds(path, folder, python)}
    else:
        raise _refused(path, "which is neither an OCI image layout nor a folder")
    found = [folder for folder in PYTHON_FOLDERS if f"{folder}/python{python}" in names]
    if not found:
        raise _refused(
            path,
            f"in which no python{python} is",
            f"a base with python{python} in {', '.join(PYTHON_FOLDERS)}",
        )
    return msgspec.structs.replace(base, python=f"/{found[0]}/python{python}")


def _refused(
    path: str, found: str, allowed: str = "a layout (with a file oci-layout), or a root file system"
) -> ManifestError:
    return ManifestError("", [Problem(OPTION, f"{path}, {found}", allowed)])


def _holds(root: str, folder: str, python: str) -> bool:
    return os.path.lexists(os.path.join(root, folder, f"python{python}"))


def _names_in(path: str, blob: str) -> Sequence[str]:
    try:
        return [name for name, is_file in names_in(blob).items() if is_file]
    except (tarfile.TarError, OSError) as error:
        raise _refused(
            path,
            f"whose layer {os.path.basename(blob)[:12]}… can't be read: {error}",
            "layers in gzip, or none",
        ) from None


def _of_rootfs(layer: Layer) -> Base:
    descriptor = {"mediaType": MEDIA_TYPE, "digest": layer.digest, "size": layer.size}
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created_by": "a root file system"}],
    }
    return Base(config=config, layers=[(descriptor, layer.path)], python="")


def _read_layout(path: str) -> Base:
    """Returns the base in a layout. Its Python is not known yet.

    :raises KeyError: a part that every layout has is missing
    """
    manifest = _json(path, os.path.join(path, "index.json"))
    while "manifests" in manifest:
        manifest = _json(path, _blob(path, _chosen(path, manifest["manifests"])))
    config = _json(path, _blob(path, manifest["config"]))
    if config.get("os") != "linux" or config.get("architecture") != architecture():
        raise _refused(
            path,
            f"which is for {config.get('os')}/{config.get('architecture')}",
            f"a base for linux/{architecture()}",
        )
    config["rootfs"]["diff_ids"]  # fails here, before a layer is written
    layers = [(layer, _blob(path, layer)) for layer in manifest["layers"]]
    return Base(config=config, layers=layers, python="")


def _chosen(path: str, manifests: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the image for this platform; the only one, if it tells none."""
    fitting = []
    for descriptor in manifests:
        place = descriptor.get("platform")
        if place is None or (place.get("os"), place.get("architecture")) == ("linux", architecture()):
            fitting.append(descriptor)
    if len(fitting) != 1:
        raise _refused(
            path, f"which has {len(fitting)} images for linux/{architecture()}", "a layout with one"
        )
    if fitting[0].get("mediaType") not in (INDEX_TYPE, MANIFEST_TYPE):
        raise _refused(path, f"of the type {fitting[0].get('mediaType')}", MANIFEST_TYPE)
    return fitting[0]


def _blob(path: str, descriptor: Mapping[str, Any]) -> str:
    algorithm, _, digest = str(descriptor["digest"]).partition(":")
    if not (algorithm.isalnum() and digest.isalnum()):
        raise _refused(path, f"with the digest {descriptor['digest']}", "sha256:…")
    blob = os.path.join(path, "blobs", algorithm, digest)
    if not os.path.isfile(blob):
        raise _refused(path, f"in which the blob {digest[:12]}… is missing", "a whole layout")
    return blob


def _json(path: str, file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as opened:
            return msgspec.json.decode(opened.read(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise _refused(path, f"whose {os.path.basename(file)[:12]} can't be read: {error}") from None
