"""Cases of ``blumfeld run``: what can't be run is said in a line, with an exit status, before anything is opened."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from blumfeld.testing.process import free_port
from campaigns.bad_input.case import Case

BAD_MANIFEST, NOT_STARTED = 2, 1
RUN_TIMEOUT_S = 90.0

OTHER_NODE = "version=1\nnode.id=7\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qw\n"


class StartUp:
    """Runs brokers that must not start; ``taken`` is the address of one that runs, ``locked`` its directory."""

    def __init__(self, folder: Path, taken: str, locked: Path) -> None:
        self.folder = folder
        self.taken = taken
        self.locked = locked
        self._runs = 0

    def manifest(self, title: str, text: str, said: str) -> Case:
        """A manifest that can't be run: ``said`` is part of the message, and no directory is made."""

        def act(_: object) -> str:
            data = self._new_folder() / "data"
            path = data.parent / "broker.toml"
            path.write_text(text)
            came = self._run([str(path), "--data-dir", str(data), "--listen", self._free()], BAD_MANIFEST)
            return f"{came} (and made {data.name}/)" if data.exists() else came.replace(f"{path}: ", "")

        return Case(f"manifest: {title}", said, act, within=True)

    def arguments(self, title: str, arguments: Sequence[str], said: str, status: int = BAD_MANIFEST) -> Case:
        """Arguments that can't be: ``said`` is part of the message."""

        def act(_: object) -> str:
            data = self._new_folder() / "data"
            return self._run(["--data-dir", str(data), "--listen", self._free(), *arguments], status)

        return Case(f"run: {title}", said, act, within=True)

    def meta_properties(self, title: str, text: str, said: str) -> Case:
        """A data directory with this in its meta.properties: like a manifest's fault, a restart can't heal it."""

        def act(_: object) -> str:
            data = self._new_folder()
            (data / "meta.properties").write_text(text)
            return self._run(["--data-dir", str(data), "--listen", self._free()], BAD_MANIFEST)

        return Case(f"run: {title}", said, act, within=True)

    def below_a_file(self) -> Case:
        """A data directory that can't be made, whoever we are."""

        def act(_: object) -> str:
            file = self._new_folder() / "file"
            file.touch()
            return self._run(["--data-dir", str(file / "data"), "--listen", self._free()], NOT_STARTED)

        return Case("run: a data directory below a file", "Not a directory", act, within=True)

    def _run(self, arguments: Sequence[str], status: int) -> str:
        """What it said, on one line; what is wrong with that, if it ended otherwise than it must."""
        command = [sys.executable, "-m", "blumfeld.cli.main", "run", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"it ran for {RUN_TIMEOUT_S:.0f} s"
        said = " ".join(done.stderr.removeprefix("blumfeld: ").split())
        if done.returncode != status:
            return f"exit status {done.returncode}, not {status}"
        return f"a traceback: {said[-200:]}" if "Traceback" in said else said

    def _new_folder(self) -> Path:
        self._runs += 1
        folder = self.folder / str(self._runs)
        folder.mkdir(parents=True)
        return folder

    def _free(self) -> str:
        return f"127.0.0.1:{free_port()}"


def cases(folder: Path, taken: str, locked: Path) -> Sequence[Case]:
    """All of them."""
    on = StartUp(folder, taken, locked)
    no_id = "version=1\nnode.id=1\n"
    return (
        on.manifest("no TOML", "[node\n", "found no TOML"),
        on.manifest("an unknown section", "[storge]\n", "(did you mean storage?)"),
        on.manifest(
            "an unknown key", '[storage]\nplugn = "storage_local"\n', "storage.plugn: found an unknown key"
        ),
        on.manifest("a wrong type", '[node]\nid = "one"\n', 'node.id: found "one"; allowed: an integer'),
        on.manifest(
            "a plug-in that isn't installed", '[storage]\nplugin = "storage_lokal"\n', "isn't installed"
        ),
        on.manifest(
            "a plug-in of another role", '[storage]\nplugin = "net_asyncio"\n', "which fills network"
        ),
        on.manifest("two plug-ins for one role", '[storage]\nplugin = ["a", "b"]\n', "storage.plugin: found"),
        on.manifest(
            "an option that the plug-in hasn't",
            "[groups.options.groups_classic]\nx = 1\n",
            "groups_classic.x: found",
        ),
        on.manifest(
            "an unknown Kafka key", '[config]\n"log.segment.byts" = 5\n', "did you mean log.segment.bytes"
        ),
        on.manifest("a Kafka key out of range", '[config]\n"log.segment.bytes" = 5\n', "1048576 or more"),
        on.manifest("a Kafka key of a wrong type", '[config]\n"log.segment.bytes" = "big"\n', 'found "big"'),
        on.manifest("a Kafka key that a section has", '[config]\n"node.id" = 5\n', 'config."node.id"'),
        on.arguments("a manifest that isn't there", ["no-such.toml"], "no-such.toml: no such file"),
        on.arguments("--set without a key", ["--set", "nonsense"], "allowed: section.key=value"),
        on.arguments("a port beyond 65535", ["--listen", "127.0.0.1:99999"], "a port from 0 to 65535"),
        on.arguments("an unknown option", ["--no-such-option"], "unrecognized arguments"),
        on.arguments("a port in use", ["--listen", on.taken], "Address already in use", NOT_STARTED),
        on.arguments(
            "somebody else's address", ["--listen", "203.0.113.1:9092"], "Cannot assign", NOT_STARTED
        ),
        on.arguments(
            "a directory that another broker has",
            ["--data-dir", str(on.locked)],
            "another process holds the lock",
            NOT_STARTED,
        ),
        on.below_a_file(),
        on.meta_properties("the directory of another node", OTHER_NODE, "of node 7, not 1"),
        on.meta_properties("a meta.properties of garbage", "\x00\x01garbage", "meta.properties"),
        on.meta_properties("a meta.properties without ids", no_id, "meta.properties"),
    )
