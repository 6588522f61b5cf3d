"""The wheel that makes an artefact know itself: the manifest and the lock, as files of a package. Pure."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import time
import zipfile
from collections.abc import Mapping

from blumfeld.cli.built_in import PACKAGE
from blumfeld_builder.tools import TIMES

DISTRIBUTION = PACKAGE.replace("_", "-")


def build_name(manifest: str, lock: str, path: str) -> str:
    """Returns the name of a build: that of its manifest, and a digest of what it was built from."""
    stem = os.path.basename(path).partition(".")[0]
    return f"{stem}-{hashlib.sha256(f'{manifest}{lock}'.encode()).hexdigest()[:12]}"


def embedded_wheel(texts: Mapping[str, str], version: str) -> tuple[str, bytes]:
    """Returns the wheel's file name and its bytes.

    :param texts: by the names in :mod:`blumfeld.cli.built_in`
    """
    info = f"{PACKAGE}-{version}.dist-info"
    files = {
        f"{PACKAGE}/__init__.py": '"""What this artefact was built from."""\n',
        **{f"{PACKAGE}/{name}": text for name, text in texts.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: blumfeld-builder\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return f"{PACKAGE}-{version}-py3-none-any.whl", wheel_bytes(
        {name: text.encode() for name, text in files.items()}, info
    )


def wheel_bytes(files: Mapping[str, bytes], info: str) -> bytes:
    """Returns a wheel with these files and its RECORD."""
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    entries = {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name, time.gmtime(TIMES)[:6])
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, data)
    return stream.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
