"""The migration of a cluster from a ZooKeeper to KRaft (KIP-866): what the quorum's leader gives it, and asks of it.

The consensus with the quorum decides. The migration brings what the tree has into the log once. Then it follows the
image: it writes each change into the tree and tells the brokers that still read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.wire.schema import Message

Decide = Callable[[Any, Any], Any]
"""(``ControllerState``, ``Moment``) → ``ControllerDecision``, all of ``blumfeld.metadata``."""


class MigratingController(Protocol):
    """The active controller of a quorum, from :meth:`Migration.lead` to :meth:`Migration.lead_no_more`."""

    id: ControllerId
    """The node, and the epoch of its leadership."""

    def decide(self, words: str, decide: Decide) -> Completion[Message]:
        """Have the controller decide in turn. Completes with the decision's response when the image has its last part;
        fails with ``BrokerError``: NOT_CONTROLLER, or what ``decide`` raised.

        :param words: the decision, in log lines
        """
        ...

    def copied_image(self) -> Completion[Any]:
        """Give a copy of the committed image (``MetadataImage``) as of one step. Listeners are told of the steps behind
        it once it is given."""
        ...


class Migration(Protocol):
    """A migration of one controller node. Any number of leaderships, each of which ends."""

    def lead(self, controller: MigratingController) -> None:
        """This node leads the quorum from now on."""
        ...

    def lead_no_more(self) -> None:
        """Another node leads, or none, or this one stops. What is under way is dropped, and the session is ended; the
        tree's fence keeps harmless what was sent. Legal without :meth:`lead`, and twice."""
        ...

    def decide_of(self, command: Message) -> Decide | None:
        """Returns how a command is decided while brokers read the tree; ``None``: as always."""
        ...

    def review(self, command: object, image: ClusterImage, records: Sequence[Message]) -> None:
        """Look at a decision before it is placed, and fit its records to brokers that read the tree.

        :param command: the request, or words for the controller's own work
        :param image: the controller's
        :raises BrokerError: the decision is refused: NOT_CONTROLLER before the tree is copied; INVALID_REQUEST or
            POLICY_VIOLATION for what a tree can't keep
        """
        ...

    async def resign(self) -> None:
        """The node stops: return when the tree has all that is committed, or doesn't get it within some seconds."""
        ...
