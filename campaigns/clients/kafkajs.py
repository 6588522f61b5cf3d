"""kafkajs: a client in JavaScript, run by node and driven through ``kafkajs_client.js``."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from campaigns.clients.client import CheckFailed, cache_folder, run_program
from campaigns.clients.json_program import JsonProgram
from campaigns.clients.records import Traits

PACKAGES = ("kafkajs@2", "kafkajs-snappy@1", "zstd-codec@0.1")
"""kafkajs has gzip alone; snappy and zstd are plugged in from these, none of which is compiled at install."""
INSTALL_S = 180.0


class KafkaJs(JsonProgram):
    """Installed by npm into the user's cache at the first run."""

    name = "kafkajs"
    assignors = ("roundrobin",)
    static_protocols = ()
    regex_protocols = ()
    why_not: ClassVar = {"regex": "kafkajs resolves a regular expression once, when it subscribes"}
    # Headers are a JavaScript object: a name given twice shows up as one entry with both values.
    traits = Traits(
        null_headers=False,
        shows_repeated_headers=False,
        codecs=("none", "gzip", "snappy", "zstd"),
        # lz4js, which is not compiled, writes linked blocks: Kafka refuses them, and so do we.
        without_codec="kafkajs has no lz4; kafkajs-lz4 needs a compiler",
    )

    @classmethod
    def absent(cls) -> str | None:
        """It needs node, and once npm and the network."""
        if not shutil.which("node"):
            return "apt install nodejs npm"
        folder = cache_folder("kafkajs")
        if not Path(folder, ".installed").exists():
            if not shutil.which("npm"):
                return "apt install npm"
            try:
                _install(folder)
            except CheckFailed as failure:
                return f"npm install failed: {failure}"
        return None

    @classmethod
    def version(cls) -> str:
        """The versions of kafkajs and node."""
        described = Path(cache_folder("kafkajs"), "node_modules", "kafkajs", "package.json").read_text()
        node = run_program(["node", "--version"]).decode().strip()
        return f"{json.loads(described)['version']} (node {node.removeprefix('v')})"

    @classmethod
    def command(cls) -> list[str]:
        """node with the script beside this module."""
        modules = str(cache_folder("kafkajs") / "node_modules")
        script = str(files("campaigns.clients") / "kafkajs_client.js")
        return ["env", f"NODE_PATH={modules}", "KAFKAJS_NO_PARTITIONER_WARNING=1", "node", script]


def _install(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
    run_program(["npm", "install", *options, *PACKAGES], timeout_s=INSTALL_S)
    Path(folder, ".installed").touch()
