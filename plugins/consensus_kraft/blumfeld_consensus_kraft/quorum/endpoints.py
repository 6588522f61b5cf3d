"""Addresses of the quorum's voters: from the configuration, from the voter set in the log, and from what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blumfeld.config.quorum import quorum_bootstrap_servers, quorum_voters
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.hooks import Composition
from blumfeld.wire.messages import raft_records
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterSet

FIRST_BOOTSTRAP_ID = -2
"""Bootstrap servers have no known node id: they get -2, -3, …, as in Kafka's clients."""


def own_endpoints(composition: Composition) -> list[Endpoint]:
    """Returns this node's controller listeners as others reach them."""
    return [
        Endpoint(
            endpoint.name,
            endpoint.advertised_host or endpoint.host,
            endpoint.advertised_port or endpoint.port,
        )
        for endpoint in composition.listeners
        if endpoint.kind == "controller"
    ]


def static_voters(configured: Sequence[str], listener: str) -> VoterSet:
    """Returns the voters of ``controller.quorum.voters``.

    :raises ConfigError: an entry has another form, or stands there twice
    """
    return VoterSet(
        Voter(ReplicaKey(endpoint.voter_id), (Endpoint(listener, endpoint.host, endpoint.port),))
        for endpoint in quorum_voters(configured)
    )


def bootstrap_servers(configured: Sequence[str], listener: str) -> dict[int, Endpoint]:
    """Returns the addresses of ``controller.quorum.bootstrap.servers``, each with an id that stands for its node.

    :raises ConfigError: an entry has another form, or stands there twice
    """
    return {
        FIRST_BOOTSTRAP_ID - number: Endpoint(listener, host, port)
        for number, (host, port) in enumerate(quorum_bootstrap_servers(configured))
    }


def recorded_voters(record: raft_records.VotersRecord, listener: str) -> VoterSet:
    """Returns the voter set of a record in the log. Endpoints on other listeners are kept, behind ``listener``'s."""
    voters = []
    for voter in record.voters:
        endpoints = [Endpoint(e.name, e.host, e.port) for e in voter.endpoints]
        endpoints.sort(key=lambda endpoint: endpoint.listener != listener)
        voters.append(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
        )
    return VoterSet(voters)


def voters_record(voters: VoterSet) -> raft_records.VotersRecord:
    """Returns the record of a voter set, as the log and snapshots have it."""
    return raft_records.VotersRecord(
        voters=[
            raft_records.VotersRecordVoter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    raft_records.Endpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ],
                kraft_version_feature=raft_records.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_min,
                    max_supported_version=voter.kraft_version_max,
                ),
            )
            for voter in voters.voters.values()
        ]
    )


class QuorumEndpoints:
    """Implements ``Endpoints`` for the nodes of the quorum.

    An address that a leader told counts until the voter set has one.
    """

    def __init__(self, bootstrap: dict[int, Endpoint]) -> None:
        self._bootstrap = bootstrap
        self._told: dict[int, Endpoint] = {}
        self._voters: dict[int, Endpoint] = {}
        self.voters = VoterSet()
        """The set whose addresses count."""

    def set_voters(self, voters: VoterSet) -> None:
        """The voter set changed."""
        self.voters = voters
        self._voters = {
            voter.key.id: voter.endpoints[0] for voter in voters.voters.values() if voter.endpoints
        }

    def told(self, nodes: Iterable[tuple[int, str, int]], listener: str) -> None:
        """An answer names nodes with their addresses."""
        for node_id, host, port in nodes:
            if host and port:
                self._told[node_id] = Endpoint(listener, host, port)

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """As ``Endpoints.endpoint``: there is one listener for the quorum."""
        return self._voters.get(node_id) or self._bootstrap.get(node_id) or self._told.get(node_id)
