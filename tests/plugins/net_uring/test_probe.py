"""What the probe finds, and that each rung of the ladder can be stood on."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from blumfeld_net_uring.io_uring import abi, system
from blumfeld_net_uring.io_uring import probe as probe_module
from blumfeld_net_uring.io_uring.probe import FEATURES, Probe, probe
from tests.plugins.net_uring.ring_tools import (
    descriptors_without_garbage,
    needs_ring,
    open_descriptors,
    ring_mappings,
)

FORBID = """
import ctypes, struct
# Allow everything but io_uring_setup (425), which gives EPERM.
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50000 | 1), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
program = struct.pack("=H6xQ", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0):
    print("no seccomp")
    raise SystemExit
from blumfeld_net_uring.io_uring.loop import UringLoop, new_loop
loop = new_loop()
print(type(loop).__name__, loop.probe.describe(), sep=": ")
loop.close()
"""


@needs_ring
class TestHere:
    def test_it_says_what_there_is(self) -> None:
        ring_probe = probe()
        assert ring_probe.available
        assert ring_probe.describe().startswith(f"io_uring ({'.'.join(os.uname().release.split('.')[:2])}: ")
        for feature in ring_probe.features:
            assert feature in ring_probe.describe()

    def test_it_leaves_nothing_behind(self) -> None:
        before = descriptors_without_garbage(), ring_mappings()
        for _ in range(5):
            probe()
        assert (open_descriptors(), ring_mappings()) == before

    @pytest.mark.parametrize("feature", FEATURES)
    def test_each_feature_can_be_left_out_alone(self, feature: str) -> None:
        without = probe({feature.replace(" ", "_")})
        follow = {
            "cooperative task run": {"single issuer", "deferred task run"},
            "single issuer": {"deferred task run"},
            "buffer ring": {"multishot recv"},
        }
        gone = {feature} | follow.get(feature, set())
        assert set(without.features) == set(probe().features) - gone
        assert without.available

    def test_the_properties_are_the_features(self) -> None:
        ring_probe = Probe("6.18", ("multishot accept", "buffer ring"))
        assert ring_probe.multishot_accept
        assert ring_probe.buffer_ring
        assert [ring_probe.multishot_recv, ring_probe.splice, ring_probe.cancel_fd] == [False] * 3

    def test_what_the_transport_cannot_do_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe_module, "_operations_of", lambda ring: {abi.OP_ACCEPT, abi.OP_SEND})
        assert probe().why_not == "the kernel's io_uring lacks recv, sendmsg, poll_add, async_cancel"

    @pytest.mark.parametrize("operation", [abi.REGISTER_PROBE, abi.REGISTER_PBUF_RING])
    def test_a_refused_registration_is_no_crash(
        self, operation: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real: Callable[..., int] = system.syscall

        def refuse(number: int, *args: object) -> int:
            if number == abi.SYS_REGISTER and args[1] == operation:
                ctypes.set_errno(errno.EINVAL)
                return -1
            return real(number, *args)

        monkeypatch.setattr(system, "syscall", refuse)
        ring_probe = probe()
        if operation == abi.REGISTER_PROBE:
            assert (
                ring_probe.why_not
                == "the kernel's io_uring tells no operations (io_uring_register: Invalid argument)"
            )
        else:
            assert ring_probe.available
            assert not ring_probe.buffer_ring
            assert not ring_probe.multishot_recv

    def test_a_kernel_without_multishot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It takes the entry and accepts, or receives, once."""
        monkeypatch.setattr(abi, "ACCEPT_MULTISHOT", 0)
        assert not probe().multishot_accept

    def test_a_system_that_forbids_it_is_told_apart(self) -> None:
        """By a seccomp filter, as container runtimes have."""
        answer = subprocess.run(
            [sys.executable, "-c", FORBID], capture_output=True, text=True, timeout=90, check=True
        )
        if answer.stdout.startswith("no seccomp"):
            pytest.skip("this system allows no seccomp filter")
        assert answer.stdout.startswith(
            "PlainLoop: no io_uring (the system forbids io_uring (EPERM: a seccomp filter"
        )


def test_left_out_altogether() -> None:
    ring_probe = probe({"io_uring"})
    assert not ring_probe.available
    assert ring_probe.describe() == "no io_uring (left out by configuration)"


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(ValueError, match="no feature of io_uring: warp; there are single issuer"):
        probe({"warp"})
