"""The wheels of this repository's distributions, and fresh environments that they are installed into."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def ran(*command: str, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process that ended with this status."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def build(folder: Path) -> None:
    """Put what ``make wheels`` makes into the folder, and a wheel of each example."""
    ran("make", "--silent", "wheels", f"DIST={folder}", cwd=ROOT)
    wheel = (*_PIP, "wheel", "--no-build-isolation", "--wheel-dir", str(folder))
    ran(*wheel, "--no-deps", *map(str, EXAMPLES))


def held(wheel: Path) -> tuple[set[str], dict[str, bytes]]:
    """Top-level names of a wheel, and the files of its dist-info."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        info = {name.partition("/")[2]: file.read(name) for name in names if ".dist-info/" in name}
    return {name.partition("/")[0] for name in names if ".dist-info/" not in name}, info


def requirements(info: dict[str, bytes]) -> list[str]:
    """What the metadata of a wheel asks for."""
    return message_from_bytes(info["METADATA"]).get_all("Requires-Dist", [])


class Environment:
    """A fresh environment without pip: this one's installs into it.

    :param wheels: the folder that packages come from
    """

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.wheels = wheels
        self._bin = folder / "bin"
        ran(sys.executable, "-m", "venv", "--without-pip", str(folder))

    @property
    def python(self) -> str:
        return str(self._bin / "python")

    def install(self, *packages: str, options: Sequence[str] = ("--isolated", "--no-index")) -> None:
        """Install from the folder, and from nowhere else unless ``options`` say so, not even from where pip's
        configuration points to.
        """
        command = (*_PIP, "--python", self.python, "install", "--find-links", str(self.wheels), *options)
        ran(*command, *packages)

    def blumfeld(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command ``blumfeld``. Nothing of the checkout is on its path."""
        return ran(str(self._bin / "blumfeld"), *arguments, status=status, cwd=self._bin)

    def importable(self, modules: Sequence[str]) -> set[str]:
        """Those of the modules that can be found."""
        code = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m)))"
        return set(ran(self.python, "-c", code, *modules, cwd=self._bin).stdout.split())
