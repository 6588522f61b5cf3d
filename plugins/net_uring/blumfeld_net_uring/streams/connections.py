"""The concrete connection classes: each way to receive, for accepted and for dialled connections."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.readiness.streams import Socket
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_net_uring.streams.receivers import GROUP_SLOTS, POLLED_SLOTS, GroupStream, PolledStream
from blumfeld_net_uring.streams.send_queue import UringSendQueue
from blumfeld_net_uring.streams.turn import UringTurn


class GroupAccepted(GroupStream, AcceptedConnection):
    """An accepted connection that receives into the buffer group."""

    __slots__ = GROUP_SLOTS


class GroupOutbound(GroupStream, OutboundConnection):
    """A dialled connection that receives into the buffer group."""

    __slots__ = GROUP_SLOTS


class PolledAccepted(PolledStream, AcceptedConnection):
    """An accepted connection that polls before it receives."""

    __slots__ = POLLED_SLOTS


class PolledOutbound(PolledStream, OutboundConnection):
    """A dialled connection that polls before it receives."""

    __slots__ = POLLED_SLOTS


def accepted(
    turn: UringTurn,
    sock: Socket,
    peer: tuple[str, int],
    identity: int,
    listener: Listener,
    handler: ConnectionHandler,
    limits: Limits,
    layer: ByteLayer | None,
    forget: Callable[[AcceptedConnection], None],
) -> AcceptedConnection:
    """Make an accepted connection of the right kind. A byte layer asks for bytes itself, so its connection
    polls.
    """
    queue = UringSendQueue(sock, turn.calls, turn.ring)
    kind = GroupAccepted if turn.group is not None and layer is None else PolledAccepted
    stream = kind(turn, queue, peer, identity, listener, handler, limits, layer, forget)
    _attach(stream, sock, queue)
    return stream


def outbound(
    turn: UringTurn,
    sock: Socket,
    receiver: FrameReceiver,
    limits: Limits,
    layer: ByteLayer | None,
    forget: Callable[[OutboundConnection], None],
) -> OutboundConnection:
    """Make a dialled connection of the right kind."""
    queue = UringSendQueue(sock, turn.calls, turn.ring)
    kind = GroupOutbound if turn.group is not None and layer is None else PolledOutbound
    stream = kind(turn, queue, receiver, limits, layer, forget)
    _attach(stream, sock, queue)
    return stream


def _attach(
    stream: GroupAccepted | GroupOutbound | PolledAccepted | PolledOutbound,
    sock: Socket,
    queue: UringSendQueue,
) -> None:
    if isinstance(stream, GroupStream):
        stream._direct = None
        stream._expects_large = False
    else:
        stream._recv_into = sock.recv_into
        stream._read_bytes = stream.turn.read_bytes
    stream.attach(sock, queue)
