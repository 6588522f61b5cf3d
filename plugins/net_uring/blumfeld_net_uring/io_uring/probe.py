"""Probes the kernel's io_uring features at start, by trying them on a small ring.

A feature can be missing because the kernel is old, because an administrator forbids it, or because
``without`` names it. The transport falls back for that feature alone, and tests can run with every fallback.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Iterable

import attrs

from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.buffers import BufferGroup
from blumfeld_net_uring.io_uring.ring import Ring, RingUnavailable
from blumfeld_net_uring.io_uring.system import SETUP_NAMES, register

IO_URING = "io_uring"
"""Named in ``without``, it means that there is no ring at all."""
FEATURES = (
    *SETUP_NAMES.values(),
    "multishot accept",
    "multishot recv",
    "buffer ring",
    "splice",
    "cancel by descriptor",
    "send bundle",
)
"""Features in the order of :meth:`Probe.describe`. In ``without`` an underscore may stand for a space."""

_NEEDED = {
    "accept": abi.OP_ACCEPT,
    "recv": abi.OP_RECV,
    "send": abi.OP_SEND,
    "sendmsg": abi.OP_SENDMSG,
    "poll_add": abi.OP_POLL_ADD,
    "async_cancel": abi.OP_ASYNC_CANCEL,
}
_OPERATIONS_MAX = 256
_ANSWER_SECONDS_MAX = 1.0


@attrs.frozen
class Probe:
    """Result of the probe. ``why_not`` is ``None`` if there is a ring, else the reason for an operator."""

    kernel: str
    features: tuple[str, ...]
    why_not: str | None = None

    def has(self, feature: str) -> bool:
        """Whether a feature of ``FEATURES`` is available."""
        return feature in self.features

    @property
    def available(self) -> bool:
        """Whether there is a ring."""
        return self.why_not is None

    @property
    def multishot_accept(self) -> bool:
        """One entry accepts all connections (5.19)."""
        return self.has("multishot accept")

    @property
    def multishot_recv(self) -> bool:
        """One entry receives all bytes of a connection, into a buffer group (6.0)."""
        return self.has("multishot recv")

    @property
    def buffer_ring(self) -> bool:
        """Buffer groups (5.19). Without them the transport receives into :class:`Slabs`."""
        return self.has("buffer ring")

    @property
    def splice(self) -> bool:
        """File regions go through a pipe without copying (5.7)."""
        return self.has("splice")

    @property
    def cancel_fd(self) -> bool:
        """``Ring.cancel_fd`` works (5.19). Without it cancel by token."""
        return self.has("cancel by descriptor")

    def describe(self) -> str:
        """Description for ``plan``, the log and a bench row."""
        if self.why_not is not None:
            return f"no io_uring ({self.why_not})"
        return f"io_uring ({self.kernel}: {', '.join(self.features) or 'no features'})"


def probe(without: Iterable[str] = ()) -> Probe:
    """Ask the kernel; takes about 0.3 ms. ``without``: names of ``FEATURES``, or ``io_uring``, to leave
    unused.

    :raises ValueError: ``without`` has an unknown name
    """
    left_out = names_of(without)
    kernel = ".".join(os.uname().release.split(".")[:2])
    if IO_URING in left_out:
        return Probe(kernel, (), "left out by configuration")
    try:
        ring = Ring(8, 16, setup_without=left_out)
    except RingUnavailable as refusal:
        return Probe(kernel, (), refusal.reason)
    try:
        features = _features_of(ring)
    except _Missing as missing:
        return Probe(kernel, (), str(missing))
    finally:
        ring.close()
    if "buffer ring" in left_out:
        features.discard("multishot recv")  # multishot receives need a buffer group
    return Probe(kernel, tuple(name for name in FEATURES if name in features and name not in left_out))


def names_of(without: Iterable[str]) -> frozenset[str]:
    """The named features, spelled as in ``FEATURES``.

    :raises ValueError: there is no such feature
    """
    names = frozenset(name.replace("_", " ") if name != IO_URING else name for name in without)
    if unknown := sorted(names - set(FEATURES) - {IO_URING}):
        raise ValueError(f"no feature of io_uring: {', '.join(unknown)}; there are {', '.join(FEATURES)}")
    return names


class _Missing(Exception):  # noqa: N818 - the noun says what it is
    """A feature that the transport needs is missing."""


def _features_of(ring: Ring) -> set[str]:
    operations = _operations_of(ring)
    if lacking := [name for name, number in _NEEDED.items() if number not in operations]:
        raise _Missing(f"the kernel's io_uring lacks {', '.join(lacking)}")
    features = set(ring.setup)
    if abi.OP_SPLICE in operations:
        features.add("splice")
    if ring.features & abi.FEAT_RECVSEND_BUNDLE:
        features.add("send bundle")
    if _accepts_multishot(ring):
        features.add("multishot accept")
    try:
        group = BufferGroup(ring, size_bytes=64, count_first=1, count_max=1)
    except OSError:
        pass
    else:
        features.add("buffer ring")
        if _receives_multishot(ring, group):
            features.add("multishot recv")
    if _cancels_by_descriptor(ring):
        features.add("cancel by descriptor")
    return features


def _operations_of(ring: Ring) -> set[int]:
    """Operations that the kernel supports, from struct io_uring_probe: a header of 16 bytes, then 8 for each
    operation: number, -, flags (16 bits), -.
    """
    answer = ctypes.create_string_buffer(16 + 8 * _OPERATIONS_MAX)
    try:
        register(ring.fd, abi.REGISTER_PROBE, answer, _OPERATIONS_MAX)
    except OSError as error:
        raise _Missing(f"the kernel's io_uring tells no operations ({error.strerror})") from error
    raw = answer.raw
    return {raw[at] for at in range(16, 16 + 8 * raw[1], 8) if raw[at + 2] & abi.OP_SUPPORTED}


def _accepts_multishot(ring: Ring) -> bool:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind("")  # The kernel chooses an abstract address.
        listener.listen(1)
        client.connect(listener.getsockname())
        result, flags = _first(ring, lambda token: ring.accept(token, listener.fileno(), multishot=True))
        if result >= 0:
            os.close(result)
        return result >= 0 and bool(flags & abi.CQE_F_MORE)


def _receives_multishot(ring: Ring, group: BufferGroup) -> bool:
    near, far = socket.socketpair()
    with near, far:
        far.send(b"?")
        result, flags = _first(ring, lambda token: ring.recv_group(token, near.fileno(), group.group))
        return result == 1 and bool(flags & abi.CQE_F_MORE) and bool(flags & abi.CQE_F_BUFFER)


def _cancels_by_descriptor(ring: Ring) -> bool:
    near, far = socket.socketpair()
    with near, far:
        result, _ = _first(ring, lambda token: ring.cancel_fd(token, near.fileno()))
        return result >= 0


def _first(ring: Ring, queue: Callable[[int], None]) -> tuple[int, int]:
    """The first completion of one operation; (-1, 0) if none comes. Other operations end with the ring."""
    answers: list[tuple[int, int]] = []
    token = ring.attach(lambda result, flags: answers.append((result, flags)))
    queue(token)
    deadline = time.monotonic() + _ANSWER_SECONDS_MAX
    while not answers and time.monotonic() < deadline:
        ring.enter(10_000_000)
        ring.reap()
    return answers[0] if answers else (-1, 0)
