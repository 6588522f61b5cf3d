"""The contract of a SASL mechanism, as tests: subclass :class:`AuthenticatorContract` and give it yours.

.. code-block:: python

    class TestMyMechanism(AuthenticatorContract):
        mechanism = "PLAIN"
        user, password = "alice", "right"

        def make_mechanisms(self, runtime):
            return MyPlugin().mechanisms(runtime)

        def client(self, runtime, user, password):
            yield f"\\0{user}\\0{password}".encode()
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeVar

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.security import Authenticator, Mechanisms, Stepped
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.not_tried import not_tried

ADDRESS = "10.0.0.7"
LISTENER = Listener(name="SASL", kind="broker", host="127.0.0.1", port=9092, security_protocol="SASL_SSL")
STEPS_MAX = 16
"""Tokens of one exchange. A mechanism that wants more holds a connection for no use."""
STEP_MS_MAX = 20.0
"""CPU time of one step on the loop. What takes longer belongs to ``Runtime.offload``."""
WAIT_MS_MAX = 60_000
"""Virtual time in which a completion must be done."""
GARBAGE = (
    b"",
    b"\x00",
    b"\x00" * 3,
    bytes(200_000),
    b"\xff\xfe\xfd",
    b"n,,n=,r=",
    "\u202e\u0000é".encode(),
    b"=" * 70_000,
    b"," * 70_000,
    b"{" * 70_000,
)
"""Tokens that no client should send."""

T = TypeVar("T")
Client = Generator[bytes, bytes, None]
"""Yields a client's tokens, and is sent the replies."""


class Ended(NamedTuple):
    """The end of an exchange."""

    principal: Principal | None
    refusal: BrokerError | None
    steps: int
    offloads: int
    """Pieces of work that were handed to workers."""
    slowest_ms: float
    """CPU time of the slowest step on the loop, with what it does there before its completion is done."""
    lifetime_ms: float | None
    told: tuple[str, ...] = ()
    """What the client and the log were told before the end: replies, and ``Stepped.refused``."""


class AuthenticatorContract:
    """The contract of ``blumfeld.spi.security.Authenticator`` as tests."""

    mechanism: str
    """The name of the mechanism to test: ``PLAIN``."""
    user = "alice"
    password = "the right password"
    """The password, key or token of :attr:`user`."""
    wrong = "another password"
    """A secret that isn't taken. For a mechanism of tokens: one that is forged, or has ended."""
    unknown = "malice"
    """A user that the mechanism doesn't know."""
    names_users = True
    """Whether a client names its user beside its secret. A bearer token names it itself."""
    garbage: tuple[bytes, ...] = ()
    """More messages that no client should send, of a form that comes further into your mechanism."""

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        """What your plug-in's ``blumfeld_authenticators`` gives. It knows :attr:`user` and its :attr:`password`."""
        raise NotImplementedError("override make_mechanisms")

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        """The client's side of one exchange, as a generator."""
        raise NotImplementedError("override client")

    @pytest.fixture
    def runtime(self) -> FakeRuntime:
        """A runtime on virtual time."""
        return FakeRuntime()

    @pytest.fixture
    def mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        """Yours."""
        return self.make_mechanisms(runtime)

    def _begun(self, mechanisms: Mechanisms) -> Authenticator:
        return mechanisms[self.mechanism](LISTENER, ADDRESS)

    def _refused(self) -> list[Ended]:
        """Logins that fail, each with mechanisms of its own: what one login read from a file is not there for the
        next."""
        logins = [(self.user, self.wrong)]
        if self.names_users:
            logins += [(self.unknown, self.wrong), (self.unknown, self.password)]
        refused = []
        for login in logins:
            runtime = FakeRuntime()
            refused.append(self._ended(runtime, self.make_mechanisms(runtime), *login))
        return refused

    def _ended(self, runtime: FakeRuntime, mechanisms: Mechanisms, user: str, password: str) -> Ended:
        return drive(runtime, self._begun(mechanisms), self.client(runtime, user, password))

    def test_the_name_is_one_that_clients_can_ask_for(self, mechanisms: Mechanisms) -> None:
        """Capitals, digits, hyphens and underscores, 20 at most (RFC 4422)."""
        assert re.fullmatch("[A-Z0-9_-]{1,20}", self.mechanism)
        assert self.mechanism in mechanisms

    def test_the_right_login_ends_with_its_principal(
        self, runtime: FakeRuntime, mechanisms: Mechanisms
    ) -> None:
        """Once, and again on another connection."""
        for _ in range(2):
            ended = self._ended(runtime, mechanisms, self.user, self.password)
            assert ended.refusal is None
            assert ended.principal is not None
            assert ended.principal.name == self.user
            assert ended.lifetime_ms is None or ended.lifetime_ms > 0

    def test_a_wrong_password_is_refused(self) -> None:
        """An unknown user, too, whatever the password."""
        for ended in self._refused():
            assert ended.principal is None
            assert ended.refusal is not None
            assert ended.refusal.code == ErrorCode.SASL_AUTHENTICATION_FAILED

    def test_a_refusal_tells_no_wrong_password_from_an_unknown_user(self) -> None:
        """Both have the same text, the same number of steps, and the same work of workers: neither the answer nor its
        time says which users there are."""
        if not self.names_users:
            not_tried("AuthenticatorContract", "clients of this mechanism name no user")
        refused = self._refused()
        assert len({ended.refusal.message for ended in refused if ended.refusal is not None}) == 1
        assert len({ended.steps for ended in refused}) == 1
        assert len({ended.offloads for ended in refused}) == 1

    def test_no_secret_is_in_an_error(self) -> None:
        """A client, and the node's log, are told neither the right password nor the one that was tried: by the refusal,
        or by a message before it (RFC 7628)."""
        for ended in self._refused():
            refusal = ended.refusal
            said = f"{refusal} {refusal!r} {getattr(refusal, 'message', '')} {vars(refusal)} {ended.told}"
            assert self.password not in said
            assert self.wrong not in said

    def test_garbage_is_refused_and_no_error_but_a_refusal_rises(
        self, runtime: FakeRuntime, mechanisms: Mechanisms
    ) -> None:
        """At every place of an exchange. A defect would have a traceback in the log for each frame of a stranger."""
        longest = self._ended(runtime, mechanisms, self.user, self.password).steps
        for token in (*GARBAGE, *self.garbage):
            for before in range(longest):
                client = _spoiling(self.client(runtime, self.user, self.password), before, token)
                ended = drive(runtime, self._begun(mechanisms), client)
                assert ended.principal is None, f"{token[:20]!r} as token {before + 1} logs in"
                assert ended.refusal is None or ended.refusal.code == ErrorCode.SASL_AUTHENTICATION_FAILED

    def test_a_step_holds_nobody_up(self, runtime: FakeRuntime, mechanisms: Mechanisms) -> None:
        """Neither a right login nor garbage takes long on the loop, in the step or in a task that it waits for: all
        clients wait meanwhile."""
        slowest_ms = self._ended(runtime, mechanisms, self.user, self.password).slowest_ms
        for token in (*GARBAGE, *self.garbage):
            client = _spoiling(self.client(runtime, self.user, self.password), 0, token)
            slowest_ms = max(slowest_ms, drive(runtime, self._begun(mechanisms), client).slowest_ms)
        assert slowest_ms < STEP_MS_MAX

    def test_exchanges_of_two_connections_say_nothing_of_each_other(
        self, runtime: FakeRuntime, mechanisms: Mechanisms
    ) -> None:
        """A right login and a wrong one, in turns: a step of one, a step of the other."""
        right, wrong = self._begun(mechanisms), self._begun(mechanisms)
        clients = {
            "right": self.client(runtime, self.user, self.password),
            "wrong": self.client(runtime, self.user, self.wrong),
        }
        tokens = {name: next(client) for name, client in clients.items()}
        principals: dict[str, Principal | None] = {}
        for _ in range(STEPS_MAX):
            for name, authenticator in (("right", right), ("wrong", wrong)):
                if name not in tokens:
                    continue
                token = tokens.pop(name)
                stepped = _stepped(runtime, authenticator, token)
                if isinstance(stepped, BrokerError) or stepped.principal is not None:
                    principals[name] = None if isinstance(stepped, BrokerError) else stepped.principal
                    continue
                try:
                    tokens[name] = clients[name].send(stepped.reply)
                except StopIteration:
                    principals[name] = None
        assert principals["wrong"] is None
        assert principals["right"] is not None
        assert principals["right"].name == self.user


def _spoiling(client: Client, before: int, token: bytes) -> Client:
    """The client's first tokens, then this one, and nothing behind it but a token that ends an exchange."""
    reply = b""
    for nth in range(before):
        try:
            reply = yield (next(client) if nth == 0 else client.send(reply))
        except StopIteration:
            return
    yield token
    yield b"\x01"


def _stepped(runtime: FakeRuntime, authenticator: Authenticator, token: bytes) -> Stepped | BrokerError:
    try:
        outcome = authenticator.step(token)
        if not isinstance(outcome, Completion):
            return outcome
        waited_ms = 0
        while not outcome.done and waited_ms < WAIT_MS_MAX:
            runtime.advance(50)
            waited_ms += 50
        assert outcome.done, f"a step is not over after {WAIT_MS_MAX} ms"
        return outcome.result()
    except BrokerError as refusal:
        return refusal


def drive(runtime: FakeRuntime, authenticator: Authenticator, client: Client) -> Ended:
    """Play an exchange to its end.

    :raises BaseException: whatever the authenticator raises but ``BrokerError``: that is a defect of it
    """
    steps, slowest_ms = 0, 0.0
    told: list[str] = []
    with _CountedOffloads(runtime) as offloads:
        token = next(client)
        while True:
            steps += 1
            assert steps <= STEPS_MAX, f"an exchange has more than {STEPS_MAX} steps"
            began, offloaded_s = time.process_time(), offloads.seconds
            stepped = _stepped(runtime, authenticator, token)
            on_loop_s = time.process_time() - began - (offloads.seconds - offloaded_s)
            slowest_ms = max(slowest_ms, on_loop_s * 1000)
            if isinstance(stepped, BrokerError):
                return Ended(None, stepped, steps, offloads.count, slowest_ms, None, tuple(told))
            if stepped.principal is not None:
                return Ended(
                    stepped.principal,
                    None,
                    steps,
                    offloads.count,
                    slowest_ms,
                    stepped.lifetime_ms,
                    tuple(told),
                )
            told += [stepped.reply.decode(errors="replace"), stepped.refused or ""]
            try:
                token = client.send(stepped.reply)
            except StopIteration:
                return Ended(None, None, steps, offloads.count, slowest_ms, None, tuple(told))


class _CountedOffloads:
    """Within it a runtime's offloaded work is counted, and its CPU time is known."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime, self._offload = runtime, runtime.offload
        self.count, self.seconds = 0, 0.0

    def __enter__(self) -> _CountedOffloads:
        self._runtime.offload = self._counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.offload = self._offload  # type: ignore[method-assign]

    def _counted(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        self.count += 1

        def timed() -> T:
            began = time.process_time()
            try:
                return work(*args)
            finally:
                self.seconds += time.process_time() - began

        return self._offload(timed)
