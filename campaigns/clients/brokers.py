"""The brokers that the clients run against: one of this build, or a cluster of several."""

from __future__ import annotations

from pathlib import Path

from blumfeld.kernel.supervising.derivation import PORT_STEP
from blumfeld.testing.process import BrokerProcess, free_port

NO_REBALANCE_DELAY = 'config."group.initial.rebalance.delay.ms"=0'
"""The one setting of a single broker that is not the default: three seconds for each new group would be most of the
run."""
REPLICAS = 3
CLUSTER_SETTINGS = (
    f'config."default.replication.factor"={REPLICAS}',
    'config."min.insync.replicas"=2',
)
"""Laid over a cluster that has so many nodes: the replicas of each topic, and how many of them acks=all needs."""


def start_brokers(nodes: int, folder: Path) -> tuple[BrokerProcess, str]:
    """Start so many nodes of this build under one supervisor.

    :return: the process that is to be stopped, and ``host:port`` of every broker with commas
    :raises RuntimeError: they didn't start
    """
    settings = [NO_REBALANCE_DELAY]
    if nodes > 1:
        settings.append(f"nodes={nodes}")
    if nodes >= REPLICAS:
        settings += CLUSTER_SETTINGS
    port = free_port(adjacent=PORT_STEP * (nodes - 1) + 2)
    brokers = BrokerProcess(folder, port=port, settings=settings)
    try:
        brokers.start()
        if nodes > 1 and not brokers.says(f"all {nodes} nodes serve"):
            raise RuntimeError(
                f"not all nodes serve:\n{brokers.log_path.read_text(errors='replace')[-2000:]}"
            )
    except BaseException:
        brokers.stop()
        raise
    return brokers, ",".join(f"127.0.0.1:{port + PORT_STEP * nth}" for nth in range(nodes))
