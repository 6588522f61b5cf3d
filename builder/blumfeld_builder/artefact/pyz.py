"""``broker.pyz``: one file, written by pex. It is asked for its plan, so that what the plan says is what it does."""

from __future__ import annotations

import os
from collections.abc import Sequence

from blumfeld_builder.artefact.library import complaint
from blumfeld_builder.target import Target
from blumfeld_builder.tools import ToolFailed, run_module, run_program
from blumfeld_builder.wheels.wheel import Wheel

FILE = "broker.pyz"
ENTRY = "blumfeld.cli.main:main"


def write_artefact(path: str, wheels: Sequence[Wheel], embedded: str, target: Target, work: str) -> None:
    """Write the file at ``path``. Its bytes follow from the wheels and the version of pex.

    :param embedded: path of the wheel with the manifest and the lock
    :raises ToolFailed: pex refuses
    """
    command = ["--output-file", path, "--entry-point", ENTRY]
    # Unpacked once to a virtual environment, in which a second start goes straight to Python.
    command += ["--venv", "prepend", "--sh-boot"]
    command += ["--interpreter-constraint", f"CPython=={target.python}.*", "--python", target.executable]
    command += ["--no-pypi", "--disable-cache", "--no-compile", "--no-emit-warnings"]
    for wheel in (*(wheel.path for wheel in wheels), embedded):
        command += ["--pre-resolved-dist", wheel]
    # pex takes from the given wheels only what a requirement asks for.
    command += [f"{wheel.name}=={wheel.version}" for wheel in wheels]
    command.append(os.path.basename(embedded).split("-")[0])
    run_module("pex", *command, cwd=work, env={"PEX_ROOT": os.path.join(work, "pex")})


def ask(path: str, *arguments: str, source: str, work: str, target: Target) -> str:
    """Run a command of the artefact, and return what it printed.

    :param source: the manifest's name
    :raises ManifestError: the artefact says what is wrong
    """
    env = {"PEX_ROOT": os.path.join(work, "unpacked"), "PEX_PYTHON": target.executable}
    try:
        return run_program(["/bin/sh", path, *arguments], FILE, cwd=work, env=env).output
    except ToolFailed as failed:
        raise complaint(failed.said, source) from None
