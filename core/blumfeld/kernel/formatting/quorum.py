"""The first voters of a quorum: ``--standalone``, ``--initial-controllers`` or ``--no-initial-controllers`` (KIP-853).

A dynamic quorum begins with a checkpoint at offset 0 that names its voters. A static quorum begins with no file: its
voters are those of ``controller.quorum.voters``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from blumfeld.config.definitions import ConfigError
from blumfeld.config.quorum import BOOTSTRAP_SERVERS, VOTERS, VoterAddress, quorum_voters
from blumfeld.kernel.composing.plan import Plan
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_EPOCH, encode_checkpoint
from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld.wire.messages.raft_records import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)
from blumfeld.wire.primitives import uuid_bytes, uuid_text

DYNAMIC_KRAFT_VERSION = 1
_FLAGS = "--standalone, --initial-controllers or --no-initial-controllers"
_CONTROLLER_FORM = "ID@HOST:PORT:DIRECTORY-ID, with commas between; a directory id has 22 characters"


class InitialController(msgspec.Struct, frozen=True):
    """One entry of ``--initial-controllers``."""

    address: VoterAddress
    directory_id: bytes


class InitialQuorum(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum that a node is formatted for. Without any of the three it is static."""

    standalone: bool = False
    """This node is the only voter of a new dynamic quorum."""
    initial_controllers: tuple[InitialController, ...] = ()
    """All voters of a new dynamic quorum. Each node is formatted with the same list."""
    no_initial_controllers: bool = False
    """The node joins a dynamic quorum that exists, or that other nodes begin."""

    @property
    def is_dynamic(self) -> bool:
        """Whether the voters stand in the metadata log."""
        return self.standalone or bool(self.initial_controllers) or self.no_initial_controllers

    def own_directory_id(self, node_id: int) -> bytes | None:
        """Returns the directory id that the list gives this node; ``None`` where the node may take a new one."""
        for controller in self.initial_controllers:
            if controller.address.voter_id == node_id:
                return controller.directory_id
        return None


STATIC = InitialQuorum()


def initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Returns the entries of ``--initial-controllers``, by node id.

    :raises ManifestError: an entry has another form, or repeats an id, an address or a directory id
    """
    places, directory_ids = [], []
    try:
        for entry in text.split(","):
            place, _, directory_id = entry.strip().rpartition(":")
            places.append(place)
            directory_ids.append(_directory_id(entry, directory_id))
        addresses = quorum_voters(places)
        if len(set(directory_ids)) < len(directory_ids):
            raise ConfigError("", text, "a directory id of its own for each controller")
    except ConfigError as error:
        allowed = f"{error.allowed}; the form is {_CONTROLLER_FORM}"
        raise ManifestError("--initial-controllers", [Problem("", str(error.found), allowed)]) from None
    controllers = map(InitialController, addresses, directory_ids)
    return tuple(sorted(controllers, key=lambda controller: controller.address.voter_id))


def _directory_id(entry: str, text: str) -> bytes:
    try:
        return uuid_bytes(text)
    except ValueError:
        raise ConfigError("", entry, "a directory id behind the last colon") from None


def check_quorum(plan: Plan, quorum: InitialQuorum) -> None:
    """Check that a node of this plan can be formatted for this quorum.

    :raises ManifestError: it lists each problem
    """
    problems = list(_problems(plan, quorum))
    if problems:
        raise ManifestError(plan.source, problems)


def _problems(plan: Plan, quorum: InitialQuorum) -> Iterator[Problem]:
    is_controller = "controller" in plan.manifest.node.roles
    static, servers = plan.config.list(VOTERS), plan.config.list(BOOTSTRAP_SERVERS)
    if not quorum.is_dynamic:
        if is_controller and servers and not static:
            mistake = "bootstrap servers, and no initial voters"
            yield Problem(f'config."{BOOTSTRAP_SERVERS}"', mistake, f"one of {_FLAGS}, or {VOTERS}")
        return
    if static:
        mistake = f"a static quorum, with one of {_FLAGS}"
        yield Problem(
            f'config."{VOTERS}"', mistake, f"one of the two; a dynamic quorum has {BOOTSTRAP_SERVERS}"
        )
    if quorum.standalone and not is_controller:
        yield Problem("node.roles", "no controller, with --standalone", "the role controller")
    if is_controller and not _own_endpoint(plan):
        allowed = "one of kind controller, with a port: the voters' record has its address"
        yield Problem("network.listeners", "no listener for other controllers", allowed)
    if quorum.no_initial_controllers and not servers:
        allowed = f'the addresses of the quorum in config."{BOOTSTRAP_SERVERS}"'
        yield Problem(f'config."{BOOTSTRAP_SERVERS}"', "none, with --no-initial-controllers", allowed)


def initial_voters(plan: Plan, quorum: InitialQuorum, directory_id: bytes) -> VotersRecord | None:
    """Returns the voters that the quorum begins with; ``None`` if this node's files don't name them.

    :param directory_id: of the directory that will hold the node's metadata log
    """
    if quorum.standalone:
        return VotersRecord(voters=[_voter(plan.manifest.node.id, directory_id, _own_endpoint(plan))])
    if not quorum.initial_controllers:
        return None
    name = plan.config.list("controller.listener.names")[0]
    return VotersRecord(
        voters=[
            _voter(
                voter.address.voter_id,
                voter.directory_id,
                [Endpoint(name=name, host=voter.address.host, port=voter.address.port)],
            )
            for voter in quorum.initial_controllers
        ]
    )


def quorum_checkpoint(voters: VotersRecord, timestamp_ms: int) -> bytes:
    """Returns the bytes of the checkpoint at offset 0. It has ``kraft.version`` 1 and the voters, and no record of the
    image. Kafka's ``StorageTool`` writes the same.
    """
    return encode_checkpoint(
        [],
        epoch=BOOTSTRAP_EPOCH,
        timestamp_ms=timestamp_ms,
        last_contained_ms=timestamp_ms,
        kraft_version=DYNAMIC_KRAFT_VERSION,
        voters=voters,
    )


def in_words(voters: VotersRecord) -> str:
    """Returns the voters in the form of ``--initial-controllers``."""
    return ",".join(
        f"{voter.voter_id}@{endpoint.host}:{endpoint.port}:{uuid_text(voter.voter_directory_id)}"
        for voter in voters.voters
        for endpoint in voter.endpoints[:1]
    )


def _own_endpoint(plan: Plan) -> list[Endpoint]:
    """Returns the address of this node's first controller listener that has a port."""
    for listener in plan.listeners:
        port = listener.advertised_port or listener.port
        if listener.kind == "controller" and port:
            host = listener.advertised_host or listener.host
            return [Endpoint(name=listener.name, host=host, port=port)]
    return []


def _voter(voter_id: int, directory_id: bytes, endpoints: Sequence[Endpoint]) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=voter_id,
        voter_directory_id=directory_id,
        endpoints=list(endpoints),
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=0, max_supported_version=DYNAMIC_KRAFT_VERSION
        ),
    )
