"""The files that bring an artefact to a machine: a systemd unit and a Containerfile. Pure."""

from __future__ import annotations

import os

from blumfeld.kernel.manifest.sections import Manifest, listener_sections
from blumfeld.kernel.supervising.restarts import STOP_S_MAX
from blumfeld_builder.target import Target

UNIT_FILE = "blumfeld.service"
CONTAINERFILE = "Containerfile"
STATE = "/var/lib/blumfeld"
USER_ID = 10001
"""The user in a container: any that is nobody's on the host."""


def unit_text(manifest: Manifest) -> str:
    """Returns the systemd unit.

    The artefact unpacks itself on its first start. A service has no home, so it gets a folder of its own for that.
    """
    return f"""\
# install -D broker.pyz /opt/blumfeld/broker.pyz
# install -m 644 blumfeld.service /etc/systemd/system/
# useradd --system --home-dir /var/lib/blumfeld --shell /usr/sbin/nologin blumfeld
# systemctl daemon-reload && systemctl enable --now blumfeld
[Unit]
Description=Blumfeld, a log broker that speaks the Kafka protocol
After=network-online.target
Wants=network-online.target

[Service]
User=blumfeld
# A relative data_dir of the manifest lies in /var/lib/blumfeld.
StateDirectory=blumfeld
WorkingDirectory=/var/lib/blumfeld
# The artefact unpacks itself here, once for each build.
CacheDirectory=blumfeld
Environment=PEX_ROOT=/var/cache/blumfeld/pex
ExecStart=/opt/blumfeld/broker.pyz run
Restart=on-failure
RestartSec=5
# 2: the manifest or an argument can't be run. Starting again would change nothing.
RestartPreventExitStatus=2
# A stop waits 5 s for open requests, then writes checkpoints. Of several nodes one stops after the other.
TimeoutStopSec={round(STOP_S_MAX) * (manifest.nodes + 1)}
# The first process alone gets SIGTERM, and stops the others. A second SIGTERM would end a node at once.
KillMode=mixed
# One descriptor a connection, one for each log that is open.
LimitNOFILE=100000
NoNewPrivileges=true
ProtectSystem=strict
# A folder elsewhere that an option of a plug-in names, such as a file:// store, must stand here, too.
ReadWritePaths={" ".join(map(_quoted, _elsewhere(manifest)))}
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""


def _elsewhere(manifest: Manifest) -> list[str]:
    """Returns the log directories that are not below the state directory of the unit, in their order."""
    places = [os.path.normpath(os.path.join(STATE, place)) for place in manifest.node.directories]
    return [place for place in places if not f"{place}/".startswith(f"{STATE}/")]


def _quoted(path: str) -> str:
    """Returns a path as a word of a unit: in it spaces divide words, and a % begins a specifier."""
    escaped = path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def containerfile_text(manifest: Manifest, target: Target) -> str:
    """Returns a Containerfile. The artefact is unpacked while the image is made, so that no start waits for it."""
    ports = " ".join(str(port) for port in ports_of(manifest))
    return f"""\
# podman build -t broker .
FROM python:{target.python}-slim
ENV PEX_ROOT=/opt/blumfeld/pex
COPY broker.pyz /opt/blumfeld/broker.pyz
RUN ln -s "$(PEX_INTERPRETER=1 /opt/blumfeld/broker.pyz -c 'import sys; print(sys.prefix)')" /opt/blumfeld/venv \\
 && python{target.python} -m compileall -q --invalidation-mode unchecked-hash /opt/blumfeld/pex/installed_wheels \\
 && install -d -o {USER_ID} -g {USER_ID} /var/lib/blumfeld
USER {USER_ID}:{USER_ID}
# A relative data_dir of the manifest lies here.
WORKDIR /var/lib/blumfeld
VOLUME /var/lib/blumfeld
{f"EXPOSE {ports}" if ports else "# The manifest has no fixed port."}
STOPSIGNAL SIGTERM
# Not broker.pyz: it notes each start in what it unpacked, which a file system that is only read forbids.
ENTRYPOINT ["/opt/blumfeld/venv/bin/python", "-P", "-m", "blumfeld.cli.main"]
CMD ["run"]
"""


def ports_of(manifest: Manifest) -> list[int]:
    """Returns the fixed ports that the manifest binds, sorted."""
    binds = [listener.bind for listener in listener_sections(manifest)]
    binds += [manifest.metrics.bind] if manifest.metrics.bind is not None else []
    ports = {bind.rpartition(":")[2] for bind in binds}
    return sorted(int(port) for port in ports if port.isdigit() and port != "0")
