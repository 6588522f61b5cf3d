"""The interpreter that a build is for: its version, its platform, and which wheels it takes."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from functools import cached_property

from packaging.markers import default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import Version

from blumfeld.plugging.errors import Problem

PATH = "build.python"
OLDEST = Version("3.11")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


class Target:
    """CPython of one minor version, on the platform of this machine."""

    def __init__(self, python: str, executable: str) -> None:
        self.python = python
        self.executable = executable

    @cached_property
    def tags(self) -> tuple[Tag, ...]:
        """The tags of wheels that the interpreter takes, best first."""
        major, minor = map(int, self.python.split("."))
        return (
            *cpython_tags((major, minor)),
            *compatible_tags((major, minor), interpreter=f"cp{major}{minor}"),
        )

    @property
    def markers(self) -> Mapping[str, str]:
        """Values of the markers of requirements (PEP 508)."""
        here = {name: str(value) for name, value in default_environment().items()}
        full = here["python_full_version"] if self.python == HERE else f"{self.python}.0"
        return {
            **here,
            "python_version": self.python,
            "python_full_version": full,
            "implementation_version": full,
        }

    @property
    def environment(self) -> str:
        """The marker of a lock for this target: what the native wheels are bound to."""
        here = default_environment()
        names = ("implementation_name", "platform_machine", "sys_platform")
        return " and ".join(f"{name} == '{here[name]}'" for name in names)  # type: ignore[literal-required]


def find_target(python: str) -> Target | Problem:
    """Returns the interpreter of a version, or why there is none.

    The running one is taken where it fits, else ``pythonX.Y`` on the path.
    """
    if not re.fullmatch(r"\d+\.\d+", python) or Version(python) < OLDEST:
        return Problem(PATH, f'"{python}"', f'a version from "{OLDEST}" on, as in "{HERE}"')
    if python == HERE:
        return Target(python, sys.executable)
    executable = shutil.which(f"python{python}")
    if executable is None:
        allowed = f'a version whose interpreter is on PATH; "{HERE}" runs this command'
        return Problem(PATH, f'"{python}", and no python{python} on PATH', allowed)
    return Target(python, executable)
