"""franz-go: a client in Go, built from ``franz_go_client/`` and driven as :mod:`.json_program` says."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from campaigns.clients.client import CheckFailed, cache_folder, run_program
from campaigns.clients.json_program import JsonProgram
from campaigns.clients.verdicts import NoClientError

GO_FOLDERS = ("/usr/local/go/bin", "/usr/lib/go/bin")
"""Folders of Go's own installers, which touch nobody's PATH."""
BUILD_S = 300.0
BINARY = "franz_go_client"


class FranzGo(JsonProgram):
    """Built by go into the user's cache at the first run, and anew when the program has changed.

    For KIP-848 its option ``ServerSideBalancer`` opts in; the client-side balancer then names the broker's
    assignor (sticky: ``uniform``, range: ``range``).
    """

    name = "franz-go"
    protocols = ("classic", "consumer")
    assignors = ("range", "roundrobin", "cooperative-sticky", "uniform")
    static_protocols = ("classic",)
    # Kafka answers INVALID_REQUEST, and the id is held until the session is over.
    why_not: ClassVar = {"static": "franz-go 1.22 leaves a KIP-848 group without naming its instance id"}

    @classmethod
    def absent(cls) -> str | None:
        """It needs go, and once the modules that ``go.mod`` names."""
        if not _binary().exists():
            if go_program() is None:
                return "no go (1.26 or later) on the path"
            try:
                _build()
            except CheckFailed as failure:
                return f"go build failed: {failure}"
        return None

    @classmethod
    def version(cls) -> str:
        """Returns the version of franz-go that go.mod has."""
        match = re.search(r"twmb/franz-go v(\S+)", Path(_source(), "go.mod").read_text())
        return match[1] if match else "unknown"

    @classmethod
    def command(cls) -> list[str]:
        """The program that was built."""
        return [str(_binary())]


def franz_go_command() -> list[str]:
    """Return what runs franz-go's program, which is built if it isn't there yet.

    :raises NoClientError: it can't be built
    """
    if absent := FranzGo.absent():
        raise NoClientError(f"franz-go: {absent}")
    return FranzGo.command()


def _source() -> str:
    return str(files("campaigns.clients") / "franz_go_client")


def _binary() -> Path:
    """In a folder named for what it is built from."""
    content = b"".join(path.read_bytes() for path in sorted(Path(_source()).iterdir()) if path.is_file())
    return cache_folder("franz-go") / hashlib.sha256(content).hexdigest()[:16] / BINARY


def go_program() -> str | None:
    """The path of go; None if there is none."""
    return shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), *GO_FOLDERS)))


def _build() -> None:
    """:raises CheckFailed: what go said"""
    go, binary = go_program(), _binary()
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Built beside and renamed: two runs at once must not start half a program.
    made = binary.with_suffix(f".{os.getpid()}")
    run_program([str(go), "build", "-C", _source(), "-o", str(made), "."], timeout_s=BUILD_S)
    made.rename(binary)
