"""Sections of the cluster image, and commands of the controller, that plug-ins bring: ACLs, SCRAM credentials, quotas,
delegation tokens (docs/adr/0004-consensus-contract.md).

Every image keeps the records of these parts and every snapshot has them, also in a build without the plug-in. A section
is a typed view of them, which a plug-in computes from the records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.consensus import OnBehalf
from blumfeld.wire.schema import Message


class ImageSection(Protocol):
    """One section of the image. Pure: it reads no clock, and the same records make the same value on every node. Values
    with the same entities are equal, whichever records they came by: images are compared."""

    name: str
    """The name under which ``ClusterImage.section`` finds it: ``acls``. Each name once in a build."""
    records: tuple[type[Message], ...]
    """The metadata records that make it up: those that set an entity, and those that remove it.

    Each type belongs to one section. Only records that Kafka's metadata log has and the core gives no meaning may be
    named.
    """

    def empty(self) -> Any:
        """Returns the value before the first record."""
        ...

    def replay(self, value: Any, records: Sequence[Message]) -> Any:
        """Returns the value after the records, which are those of one step in the order of the log. ``value`` stays as
        it is: other images share it. Called once a step, or for one part of a large step after the other, on the loop:
        costs count against its turn.

        A method that raises makes the records contradict the image: the controller doesn't write them, and a node whose
        log has them doesn't start.
        """
        ...


class Decided(msgspec.Struct, frozen=True):
    """The decision on a command of a plug-in. All records are appended or none, then the response is
    sent. Many records take several batches, in a metadata transaction (KIP-868)."""

    records: tuple[Message, ...]
    """Records of the build's sections only."""
    response: Message


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may know beside the image and the request, which it may not read for itself."""

    monotonic_ms: float
    wall_ms: int
    """Milliseconds since the epoch."""
    on_behalf: OnBehalf | None
    """The client whose request it is; ``None`` for the node's own."""
    new_secret: Callable[[int], bytes]
    """``n`` → so many bytes that nobody can guess."""


class ControllerCommand(Protocol):
    """A command that a plug-in adds to the controller: CreateAcls, AlterUserScramCredentials and their like.

    ``ClusterMetadata.submit`` takes its requests on every node, as it takes those of the core.
    """

    request: type[Message]
    """The class of its requests. No command of the core and no other plug-in has it."""

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """Decide; change nothing. ``image`` has the effects of all commands before this one.

        :raises BrokerError: the answer to the whole request, with no record
        """
        ...
