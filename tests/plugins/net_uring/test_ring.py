"""The ring's operations, its two queues at their limits, and what it does with memory and tokens."""

from __future__ import annotations

import ctypes
import errno
import gc
import select
import signal
import socket
import threading
import time

import pytest

from blumfeld_net_uring.io_uring import abi, queues, system
from blumfeld_net_uring.io_uring.buffers import address_of, address_of_bytes
from blumfeld_net_uring.io_uring.ring import IGNORED, Ring, RingUnavailable
from tests.plugins.net_uring.ring_tools import (
    Told,
    descriptors_without_garbage,
    needs_ring,
    open_descriptors,
    open_ring,
    run_until,
    turn,
)

pytestmark = needs_ring
Pair = tuple[socket.socket, socket.socket]

RUNGS: list[tuple[str, ...]] = [
    (),
    ("deferred task run",),
    ("deferred task run", "single issuer"),
    ("deferred task run", "single issuer", "cooperative task run"),
]


class TestQueues:
    def test_both_wrap_around(self, ring: Ring) -> None:
        seen: list[int] = []
        tokens = [ring.attach(lambda result, flags, i=i: seen.append(i)) for i in range(5)]  # type: ignore[misc]
        for _ in range(100):
            for token in tokens:
                ring.nop(token)
            turn(ring)
        assert seen == [0, 1, 2, 3, 4] * 100
        assert ring.in_flight == 0

    def test_a_full_queue_is_submitted_by_itself(self, ring: Ring) -> None:
        recorder = Told(ring)
        for _ in range(13):
            ring.nop(recorder.token)
        turn(ring)
        assert recorder.results == [0] * 13

    def test_more_completions_than_fit_are_not_lost(self, ring: Ring) -> None:
        """The queue holds 16; the kernel keeps the rest until there is room."""
        seen: list[int] = []
        for i in range(200):
            ring.nop(ring.attach(lambda result, flags, i=i: seen.append(i)))  # type: ignore[misc]
        assert not ring.idle
        run_until(ring, lambda: len(seen) == 200)
        assert sorted(seen) == list(range(200))
        assert ring.in_flight == 0

    def test_a_callback_may_queue_more_than_fits(self, ring: Ring) -> None:
        recorder = Told(ring)

        def burst(result: int, flags: int) -> None:
            for _ in range(50):
                ring.nop(recorder.token)

        for _ in range(3):
            ring.nop(ring.attach(burst))
        run_until(ring, lambda: len(recorder.results) == 150)
        assert ring.in_flight == 0

    def test_entering_counts_what_the_kernel_took(self, ring: Ring) -> None:
        """As after a KeyboardInterrupt between the system call and our note of it."""
        recorder = Told(ring)
        ring.nop(recorder.token)
        ring.enter(0)
        ring._submitted -= 1
        ring.nop(recorder.token)
        run_until(ring, lambda: len(recorder.results) == 2)
        assert turn(ring) == 0

    def test_waiting_ends_after_its_time(self, ring: Ring) -> None:
        began = time.monotonic()
        ring.enter(20_000_000)
        assert 0.02 <= time.monotonic() - began < 60
        assert ring.reap() == 0

    def test_waiting_ends_with_a_signal(self, ring: Ring) -> None:
        caught: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: caught.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            ring.enter(None)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert caught == [signal.SIGALRM]

    def test_nothing_waits_while_there_is_something_to_reap(self, ring: Ring) -> None:
        def fails(result: int, flags: int) -> None:
            raise ValueError("mine")

        recorder = Told(ring)
        ring.nop(ring.attach(fails))
        ring.nop(recorder.token)
        ring.enter(0)
        with pytest.raises(ValueError, match="mine"):
            ring.reap()
        ring.enter(None)
        ring.reap()
        assert recorder.results == [0]

    def test_what_a_callback_raises_goes_to_on_error(self, ring: Ring) -> None:
        errors: list[Exception] = []
        ring.on_error = errors.append
        recorder = Told(ring)

        def fails(result: int, flags: int) -> None:
            raise KeyError("mine")

        ring.nop(ring.attach(fails))
        ring.nop(recorder.token)
        assert turn(ring) == 2
        assert recorder.results == [0]
        assert [str(error) for error in errors] == ["'mine'"]

    def test_idle_looks_without_a_system_call(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        memory = bytearray(10)
        recorder = Told(ring)
        ring.recv(recorder.token, near.fileno(), address_of(memory), 10)
        turn(ring)
        assert ring.idle
        far.send(b"x")
        assert not ring.idle
        run_until(ring, lambda: recorder.results == [1])


class TestTokens:
    def test_none_is_given_out_twice(self, ring: Ring) -> None:
        seen = set()
        for _ in range(1000):
            token = ring.attach(lambda result, flags: None)
            assert token not in seen
            seen.add(token)
            ring.detach(token)

    def test_a_late_completion_reaches_nobody(self, ring: Ring) -> None:
        first = Told(ring)
        ring.nop(first.token)
        ring.detach(first.token)
        second = Told(ring)
        turn(ring)
        assert first.results == second.results == []
        assert ring.strays == 1

    def test_the_ignored_token_is_no_stray(self, ring: Ring) -> None:
        ring.nop(IGNORED)
        assert turn(ring) == 1
        assert ring.strays == 0


class TestOperations:
    @pytest.mark.parametrize("without", RUNGS, ids=lambda names: "-".join(names) or "all")
    def test_bytes_come_and_go_in_every_mode(self, without: tuple[str, ...], pair: Pair) -> None:
        near, far = pair
        with open_ring(without=without) as ring:
            assert not set(ring.setup) & set(without)
            memory, data = bytearray(10), b"back"
            recorder, sent = Told(ring), Told(ring)
            ring.recv(recorder.token, near.fileno(), address_of(memory), 10)
            ring.send(sent.token, near.fileno(), address_of_bytes(data), len(data), socket.MSG_NOSIGNAL)
            run_until(ring, lambda: sent.results == [4])
            assert far.recv(10) == b"back"
            far.send(b"there")
            run_until(ring, lambda: recorder.results == [5])
            assert memory == b"there" + bytes(5)

    def test_a_bad_descriptor_is_a_result(self, ring: Ring) -> None:
        recorder = Told(ring)
        ring.recv(recorder.token, 1_000_000, 0, 10)
        turn(ring)
        assert recorder.results == [-errno.EBADF]

    def test_a_poll_tells_of_readiness_and_can_be_cancelled(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        once, always, removal = Told(ring), Told(ring), Told(ring)
        ring.poll_add(once.token, near.fileno(), select.POLLIN)
        ring.poll_add(always.token, near.fileno(), select.POLLIN, multishot=True)
        turn(ring)
        for _ in range(2):
            far.send(b"x")
            turn(ring)
        assert once.completions == [(select.POLLIN, 0)]
        assert always.results == [select.POLLIN] * 2
        ring.cancel(removal.token, always.token)
        run_until(ring, lambda: len(always.results) == 3)
        assert always.results[-1] == -errno.ECANCELED


class TestCancellation:
    @pytest.mark.parametrize(
        ("every", "answer", "cancelled"), [(True, 2, 2), (False, 0, 1)], ids=["all", "one"]
    )
    def test_by_token(self, ring: Ring, pair: Pair, every: bool, answer: int, cancelled: int) -> None:
        near, _ = pair
        memory = bytearray(10)
        recorder, cancelling = Told(ring), Told(ring)
        for _ in range(2):
            ring.recv(recorder.token, near.fileno(), address_of(memory), 10)
        turn(ring)
        ring.cancel(cancelling.token, recorder.token, every=every)
        run_until(ring, lambda: len(recorder.results) == cancelled and cancelling.results == [answer])
        assert recorder.results == [-errno.ECANCELED] * cancelled
        assert ring.in_flight == 2 - cancelled

    def test_by_descriptor(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        memory = bytearray(10)
        mine, other, cancelled = Told(ring), Told(ring), Told(ring)
        ring.recv(mine.token, near.fileno(), address_of(memory), 10)
        ring.poll_add(mine.token, near.fileno(), select.POLLIN)
        ring.poll_add(other.token, far.fileno(), select.POLLIN)
        turn(ring)
        ring.cancel_fd(cancelled.token, near.fileno())
        run_until(ring, lambda: len(mine.results) == 2)
        assert mine.results == [-errno.ECANCELED] * 2
        assert cancelled.results == [2]
        assert other.results == []


class TestMemory:
    def test_what_the_caller_holds_is_enough(self, ring: Ring, pair: Pair) -> None:
        """Between submission and completion garbage is collected and the allocator is kept busy."""
        near, far = pair
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        held = bytes(range(256)) * 4096
        memory = bytearray(100)
        sent, recorder = Told(ring), Told(ring)
        ring.send(
            sent.token,
            near.fileno(),
            address_of_bytes(held),
            len(held),
            socket.MSG_WAITALL | socket.MSG_NOSIGNAL,
        )
        ring.recv(recorder.token, near.fileno(), address_of(memory), 100)
        turn(ring)
        received = bytearray()
        far.setblocking(False)
        while len(received) < len(held):
            gc.collect(0)
            churn = [bytes([7]) * size for size in (10, 100, 1000, 100_000)]
            try:
                received += far.recv(200_000)
            except BlockingIOError:
                turn(ring)
        assert churn
        assert received == held
        gc.collect()
        far.send(b"y" * 100)
        run_until(ring, lambda: recorder.results == [100])
        assert memory == b"y" * 100

    def test_after_close_nothing_is_written(self, pair: Pair) -> None:
        """The receive is cancelled, and the bytes that come afterwards are still the socket's."""
        near, far = pair
        ring = Ring(8, 16)
        memory = bytearray(10)
        recorder = Told(ring)
        ring.recv(recorder.token, near.fileno(), address_of(memory), 10)
        ring.poll_add(recorder.token, near.fileno(), select.POLLIN, multishot=True)
        turn(ring)
        assert ring.in_flight == 2
        assert ring.close()
        assert ring.in_flight == 0
        far.send(b"late")
        assert near.recv(10) == b"late"
        assert memory == bytes(10)
        assert recorder.results == []
        assert ring.close()

    def test_close_before_linux_5_19(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        """There "cancel everything" is refused, and each token is cancelled on its own."""
        monkeypatch.setattr(abi, "CANCEL_ANY", 1 << 30)
        near, _ = pair
        ring = Ring(8, 16)
        for _ in range(3):
            ring.poll_add(Told(ring).token, near.fileno(), select.POLLIN)
        turn(ring)
        assert ring.close()

    def test_what_it_keeps_is_released_when_nothing_is_in_flight(self, pair: Pair) -> None:
        near, _ = pair
        ring = Ring(8, 16)
        in_flight: list[int] = []

        class Kept:
            def release(self) -> None:
                in_flight.append(ring.in_flight)

        ring.keep(Kept())
        given_up = Kept()
        ring.keep(given_up)
        ring.unkeep(given_up)
        ring.poll_add(Told(ring).token, near.fileno(), select.POLLIN)
        turn(ring)
        ring.close()
        assert in_flight == [0]

    def test_memory_is_rather_lost_than_corrupted(self, pair: Pair) -> None:
        """Closed by a thread that may not enter, the ring can't wait for the kernel: it never releases the memory."""
        near, _ = pair
        ring = Ring(8, 16)
        released: list[bool] = []

        class Kept:
            def release(self) -> None:
                released.append(True)

            def __del__(self) -> None:
                released.append(False)

        ring.keep(Kept())
        ring.poll_add(Told(ring).token, near.fileno(), select.POLLIN)
        turn(ring)
        let_go: list[bool] = []
        thread = threading.Thread(target=lambda: let_go.append(ring.close()))
        thread.start()
        thread.join()
        gc.collect()
        assert let_go == [False]
        assert released == []


class TestThreads:
    def test_the_first_to_enter_is_the_only_one(self, ring: Ring) -> None:
        recorder = Told(ring)
        failures: list[OSError] = []
        done = threading.Event()
        left = threading.Event()

        def first() -> None:
            ring.nop(recorder.token)
            turn(ring)
            done.set()
            left.wait(60)

        thread = threading.Thread(target=first)
        thread.start()
        assert done.wait(60)
        try:
            ring.enter(0)
        except OSError as failure:
            failures.append(failure)
        left.set()
        thread.join()
        assert recorder.results == [0]
        assert [failure.errno for failure in failures] == [errno.EEXIST]


class TestRefusals:
    @pytest.mark.parametrize(
        ("number", "switch", "words"),
        [
            (errno.ENOSYS, "", "no io_uring"),
            (errno.EPERM, "2", "kernel.io_uring_disabled = 2"),
            (errno.EPERM, "0", "seccomp"),
            (errno.EACCES, "", "EACCES: a seccomp"),
            (errno.ENOMEM, "", "ulimit -l"),
            (errno.EMFILE, "", "descriptor"),
            (errno.EIO, "", "Input/output error"),
        ],
    )
    def test_each_is_said_in_an_operators_words(
        self, number: int, switch: str, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: object) -> int:
            ctypes.set_errno(number)
            return -1

        monkeypatch.setattr(system, "syscall", refuse)
        monkeypatch.setattr(system, "_disabled_switch", lambda: switch)
        with pytest.raises(RingUnavailable) as caught:
            Ring()
        assert words in caught.value.reason

    def test_an_old_io_uring_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = descriptors_without_garbage()
        monkeypatch.setattr(abi, "FEAT_EXT_ARG", 1 << 31)
        with pytest.raises(RingUnavailable, match=r"older than Linux 5\.11"):
            Ring()
        assert open_descriptors() == before

    def test_a_kernel_that_takes_nothing_is_an_error(
        self, ring: Ring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def out_of_memory(*args: object) -> int:
            ctypes.set_errno(errno.EAGAIN)
            return -1

        recorder = Told(ring)
        for _ in range(8):
            ring.nop(recorder.token)
        with monkeypatch.context() as patch:
            patch.setattr(queues, "syscall", out_of_memory)
            with pytest.raises(OSError, match="takes no more"):
                ring.nop(recorder.token)
        run_until(ring, lambda: recorder.results == [0] * 8)
