"""Where a document may come from: a manifest, an artefact, its folder, a ``plan.json``, or a running node. An
artefact's code is not run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from zipfile import BadZipFile, ZipFile, is_zipfile

from blumfeld.cli.built_in import PACKAGE, PLAN
from blumfeld.cli.plan.composed import composed
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.running import PLAN_BYTES_MAX, decoded, plan_of_broker, plan_of_url
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.config.addresses import host_and_port
from blumfeld.kernel.describing import describe
from blumfeld.kernel.description.document import PlanDocument

IN_ARTEFACT = f"{PACKAGE}/{PLAN}"
"""Where the document lies in an artefact, below the folder of its wheel."""


def document_at(place: str, security: ClientSecurity = PLAINTEXT) -> PlanDocument:
    """Returns the document of a manifest, an artefact or its folder, a ``plan.json``, ``HOST:PORT`` or ``http://…``.

    :param security: of a connection to ``HOST:PORT``
    :raises NoPlanError: there is none
    :raises ManifestError: it is a manifest that can't be run
    :raises PluginContractError: a plug-in that it names breaks its contract
    """
    reader = _reader_of(place)
    return _of_broker(place, security) if reader is _of_broker else reader(place)


def is_manifest(place: str) -> bool:
    """Whether the place is a manifest, and no other that :func:`document_at` knows."""
    return _reader_of(place) is _of_manifest


def is_broker(place: str) -> bool:
    """Whether the place is the address of a broker."""
    return _reader_of(place) is _of_broker


def _reader_of(place: str) -> Callable[[str], PlanDocument]:
    if place.startswith(("http://", "https://")):
        return plan_of_url
    if os.path.isdir(place):
        return _of_folder
    if os.path.isfile(place):
        if place.endswith(".json"):
            return _of_file
        return _of_artefact if is_zipfile(place) else _of_manifest
    try:
        host_and_port(place)
    except ValueError:
        return _of_manifest
    return _of_broker


def _of_broker(address: str, security: ClientSecurity = PLAINTEXT) -> PlanDocument:
    return plan_of_broker(*host_and_port(address), security)


def _of_folder(path: str) -> PlanDocument:
    return _of_file(os.path.join(path, PLAN))


def _of_manifest(path: str) -> PlanDocument:
    return asyncio.run(describe(composed(path)[0])).document


def _of_file(path: str) -> PlanDocument:
    try:
        with open(path, "rb") as file:
            return decoded(file.read(PLAN_BYTES_MAX), path)
    except OSError as error:
        raise NoPlanError(path, error.strerror or str(error)) from None


def _of_artefact(path: str) -> PlanDocument:
    try:
        with ZipFile(path) as archive:
            names = [
                name for name in archive.namelist() if name == IN_ARTEFACT or name.endswith(f"/{IN_ARTEFACT}")
            ]
            if len(names) != 1:
                tell = f"it can tell itself what it is: ./{os.path.basename(path)} plan --json"
                raise NoPlanError(
                    path, f"{len(names) or 'no'} {IN_ARTEFACT} in it: {tell}, or name its folder"
                )
            with archive.open(names[0]) as file:
                content = file.read(PLAN_BYTES_MAX)
    except (BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise NoPlanError(path, f"can't be read: {error}") from None
    return decoded(content, f"{path}: {names[0]}")
