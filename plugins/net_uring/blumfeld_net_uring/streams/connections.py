"""The classes that are made: each way to receive, for accepted and for dialled connections."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.net.accepted import AcceptedConnection
from blumfeld.net.dialled import OutboundConnection
from blumfeld.net.socket_sending import Socket
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, FrameReceiver, Limits, Listener
from blumfeld_net_uring.streams.receiving import GROUP_SLOTS, POLLED_SLOTS, GroupStream, PolledStream
from blumfeld_net_uring.streams.sending import UringSendQueue
from blumfeld_net_uring.streams.turn import UringTurn


class GroupAccepted(GroupStream, AcceptedConnection):
    """Accepted, received into the group."""

    __slots__ = GROUP_SLOTS


class GroupOutbound(GroupStream, OutboundConnection):
    """Dialled, received into the group."""

    __slots__ = GROUP_SLOTS


class PolledAccepted(PolledStream, AcceptedConnection):
    """Accepted, polled."""

    __slots__ = POLLED_SLOTS


class PolledOutbound(PolledStream, OutboundConnection):
    """Dialled, polled."""

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
    """An accepted connection of the kind that fits. A byte layer is fed as it asks for bytes, so it is polled."""
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
    """A dialled connection of the kind that fits."""
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
