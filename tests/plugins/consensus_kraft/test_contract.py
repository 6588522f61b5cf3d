"""KRaft keeps the contract of a consensus, as a stranger's would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld_kit import ConsensusContract
from blumfeld_kit.simulation.machine.host import ADDRESS, DATA_DIR, address_of

CONTROLLER_PORT = 9093


class TestKraft(ConsensusContract):
    """Three nodes, each broker and voter. It lacks nothing."""

    def node_sections(self, node_ids: Sequence[int]) -> Callable[[int], Mapping[str, Any]]:
        voters = ",".join(f"{one}@{address_of(one)}:{CONTROLLER_PORT}" for one in node_ids)

        def sections(node_id: int) -> Mapping[str, Any]:
            host = address_of(node_id)
            listeners = [
                {"name": "PLAINTEXT", "bind": f"{host}:{ADDRESS[1]}", "inter_broker": True},
                {"name": "CONTROLLER", "kind": "controller", "bind": f"{host}:{CONTROLLER_PORT}"},
            ]
            return {
                "node": {
                    "id": node_id,
                    "roles": ["broker", "controller"],
                    "data_dir": DATA_DIR,
                    "cluster_id": "Y29udHJhY3RjbHVzdGVyMQ",
                },
                "network": {"plugin": "net_simulated", "listeners": listeners},
                "config": {"controller.quorum.voters": voters},
            }

        return sections
