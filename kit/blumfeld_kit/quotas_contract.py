"""The contract of quotas, as tests: subclass :class:`QuotasContract` and give it yours.

.. code-block:: python

    class TestMyQuotas(QuotasContract):
        def make_quotas(self):
            return MyQuotas()

        def limit(self, quotas, key, rate, *, user=None, client_id=None, host=None):
            quotas.limits[key, user, client_id, host] = rate
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from blumfeld.spi.quotas import ClientQuotas
from blumfeld_kit.not_tried import not_tried

PRODUCED, FETCHED, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
"""Kafka's keys of quotas."""
ALICE, BOB, CLIENT = "alice-of-the-contract", "bob-of-the-contract", "client-of-the-contract"
HOST, OTHER_HOST = "10.0.0.7", "10.0.0.8"
MINUTE_MS = 60_000
WARM_UP_MS = 30_000
"""Time after which a rate is measured. A new client may take a burst at first."""
WAIT_MS_MAX = 30_000
"""A client's request times out after so long (``request.timeout.ms``)."""
TOLERANCE = 0.05
QUESTIONS = 2_000
QUESTION_MS_MAX = 0.2
"""CPU time of one question. A broker asks at least one a request, on its only thread."""


class QuotasContract:
    """The contract of ``blumfeld.spi.quotas.ClientQuotas`` as tests."""

    keys: tuple[str, ...] = (PRODUCED, FETCHED, REQUEST, MUTATIONS, CONNECTIONS)
    """The quotas that yours has."""

    def make_quotas(self) -> ClientQuotas:
        """Your quotas, which limit nobody yet."""
        raise NotImplementedError("override make_quotas")

    def limit(
        self, quotas: Any, key: str, rate: float, *, user: str | None = None, host: str | None = None
    ) -> None:
        """Limit a user, or an address (``connection_creation_rate``), to this rate a second; ``request_percentage`` is
        a share of one thread, in percent."""
        raise NotImplementedError("override limit")

    @pytest.fixture
    def quotas(self) -> ClientQuotas:
        """Your quotas."""
        return self.make_quotas()

    def _needs(self, key: str) -> None:
        if key not in self.keys:
            not_tried("QuotasContract", f"there is no {key}")

    def _take(self, quotas: ClientQuotas, key: str, user: str, count: int, now_ms: float) -> float:
        """Count so much of one quota; returns the wait."""
        if key == PRODUCED:
            return quotas.produced(user, CLIENT, count, now_ms)
        if key == FETCHED:
            return quotas.fetched(user, CLIENT, count, now_ms)
        if key == REQUEST:
            return quotas.busy(user, CLIENT, count, now_ms)
        waits_ms = quotas.mutated(user, CLIENT, count, now_ms, strict=False)
        assert waits_ms is not None, "only a strict request is refused"
        return waits_ms

    def test_without_a_limit_nobody_waits(self, quotas: ClientQuotas) -> None:
        """However much a client takes."""
        for nth in range(100):
            now_ms = nth * 1.0
            for key in (PRODUCED, FETCHED, REQUEST, MUTATIONS):
                assert self._take(quotas, key, ALICE, 1 << 30, now_ms) == 0
            assert quotas.mutated(ALICE, CLIENT, 1 << 20, now_ms, strict=True) == 0
            assert quotas.mutation_throttle_ms(ALICE, CLIENT, now_ms) == 0
            assert quotas.fetch_bytes_max(ALICE, CLIENT) is None
            assert quotas.connected(HOST, now_ms) == 0
            assert quotas.limits_produce(ALICE, CLIENT) is False

    @pytest.mark.parametrize(
        ("key", "rate", "count", "per_s"),
        [
            (PRODUCED, 100_000.0, 5_000, 100_000.0),
            (FETCHED, 100_000.0, 5_000, 100_000.0),
            (REQUEST, 50.0, 20, 500.0),
            (MUTATIONS, 10.0, 1, 10.0),
        ],
    )
    def test_a_client_that_waits_as_it_is_told_gets_its_rate(
        self, quotas: ClientQuotas, key: str, rate: float, count: int, per_s: float
    ) -> None:
        """Over a minute, within five percent. It takes as much as it may."""
        self._needs(key)
        self.limit(quotas, key, rate, user=ALICE)
        now_ms, taken = 0.0, 0
        while now_ms < WARM_UP_MS + MINUTE_MS:
            waits_ms = self._take(quotas, key, ALICE, count, now_ms)
            assert 0 <= waits_ms <= WAIT_MS_MAX
            if now_ms >= WARM_UP_MS:
                taken += count
            now_ms += max(waits_ms, 1.0)
        assert taken / 60 == pytest.approx(per_s, rel=TOLERANCE)

    def test_a_limit_of_one_user_is_no_limit_of_another(self, quotas: ClientQuotas) -> None:
        """The client that takes too much waits alone."""
        for key in self.keys:
            if key == CONNECTIONS:
                self.limit(quotas, key, 1.0, host=HOST)
            else:
                self.limit(quotas, key, 1.0, user=ALICE)
        for nth in range(200):
            for key in set(self.keys) - {CONNECTIONS}:
                self._take(quotas, key, ALICE, 1_000, float(nth))
                assert self._take(quotas, key, BOB, 1_000, float(nth)) == 0
            quotas.connected(HOST, float(nth))
            assert quotas.connected(OTHER_HOST, float(nth)) == 0
        assert quotas.fetch_bytes_max(BOB, CLIENT) is None
        assert quotas.mutation_throttle_ms(BOB, CLIENT, 200.0) == 0

    @pytest.mark.parametrize("key", [PRODUCED, REQUEST])
    def test_a_produce_of_a_client_with_a_limit_counts(self, quotas: ClientQuotas, key: str) -> None:
        """A limit of bytes or of time. The broker asks for nothing else where it counts for none, and remembers that
        until the generation is another one."""
        self._needs(key)
        assert quotas.limits_produce(ALICE, CLIENT) is False
        before = quotas.generation
        assert quotas.limits_produce(ALICE, CLIENT) is False
        assert quotas.generation == before, "asking changes the generation: nothing would be remembered"
        self.limit(quotas, key, 1_000.0, user=ALICE)
        assert quotas.generation != before, "a limit came, and the generation is the same"
        assert quotas.limits_produce(ALICE, CLIENT) is True
        assert quotas.limits_produce(BOB, CLIENT) is False

    def test_a_produce_that_may_be_is_told_no_wait_and_asking_counts_nothing(
        self, quotas: ClientQuotas
    ) -> None:
        """The broker says no wait to a request that may be, before it counts it."""
        self._needs(PRODUCED)
        self.limit(quotas, PRODUCED, 1_000.0, user=ALICE)
        now_ms, may, may_not = 0.0, 0, 0
        for _ in range(200):
            answers = {quotas.may_produce(ALICE, CLIENT, 300, now_ms) for _ in range(5)}
            assert len(answers) == 1
            waits_ms = quotas.produced(ALICE, CLIENT, 300, now_ms)
            assert not (answers == {True} and waits_ms)
            may, may_not = may + (answers == {True}), may_not + (answers == {False})
            now_ms += 100.0
        assert may
        assert may_not

    def test_a_wait_is_never_longer_than_a_client_waits_for_an_answer(self, quotas: ClientQuotas) -> None:
        """Nor less than nothing, however much was taken at once. What is left of the debt comes with the next one."""
        for key in set(self.keys) - {CONNECTIONS}:
            self.limit(quotas, key, 1.0, user=ALICE)
            waits_ms = [self._take(quotas, key, ALICE, 1 << 40, float(nth)) for nth in range(20)]
            assert waits_ms[-1] > 0
            assert max(waits_ms) <= WAIT_MS_MAX
            assert min(waits_ms) >= 0

    def test_a_client_that_rests_is_served_again(self, quotas: ClientQuotas) -> None:
        """After what it took too much is paid back."""
        self._needs(PRODUCED)
        self.limit(quotas, PRODUCED, 1_000.0, user=ALICE)
        now_ms = 0.0
        for _ in range(50):
            now_ms += self._take(quotas, PRODUCED, ALICE, 5_000, now_ms) or 1.0
        assert self._take(quotas, PRODUCED, ALICE, 1, now_ms + 10 * MINUTE_MS) == 0

    def test_a_fetch_may_always_have_some_bytes(self, quotas: ClientQuotas) -> None:
        """A limit of the answer is above nothing: else a consumer would never get on."""
        self._needs(FETCHED)
        self.limit(quotas, FETCHED, 1_000.0, user=ALICE)
        for nth in range(50):
            self._take(quotas, FETCHED, ALICE, 100_000, float(nth))
            most = quotas.fetch_bytes_max(ALICE, CLIENT)
            assert most is None or most > 0

    def test_a_strict_request_is_refused_while_there_is_a_wait_and_not_counted(
        self, quotas: ClientQuotas
    ) -> None:
        """CreateTopics since version 6 is told THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
        self._needs(MUTATIONS)
        self.limit(quotas, MUTATIONS, 1.0, user=ALICE)
        for _ in range(QUESTIONS):
            if quotas.mutation_throttle_ms(ALICE, CLIENT, 0.0):
                break
            quotas.mutated(ALICE, CLIENT, 1, 0.0, strict=False)
        waits_ms = quotas.mutation_throttle_ms(ALICE, CLIENT, 0.0)
        assert waits_ms > 0
        for _ in range(5):
            assert quotas.mutated(ALICE, CLIENT, 1_000, 0.0, strict=True) is None
        assert quotas.mutation_throttle_ms(ALICE, CLIENT, 0.0) == pytest.approx(waits_ms)

    def test_an_address_opens_connections_at_its_rate(self, quotas: ClientQuotas) -> None:
        """One that must wait is closed, and doesn't count: a client that tries on and on gets its rate all the same."""
        self._needs(CONNECTIONS)
        self.limit(quotas, CONNECTIONS, 10.0, host=HOST)
        opened = 0
        for nth in range((WARM_UP_MS + MINUTE_MS) // 10):
            waits_ms = quotas.connected(HOST, nth * 10.0)
            assert 0 <= waits_ms <= WAIT_MS_MAX
            opened += not waits_ms and nth * 10 >= WARM_UP_MS
        assert opened / 60 == pytest.approx(10.0, rel=TOLERANCE)

    def test_any_name_may_be_asked_for(self, quotas: ClientQuotas) -> None:
        """A client chooses its client id, and may choose another one each time."""
        for key in set(self.keys) - {CONNECTIONS}:
            self.limit(quotas, key, 1_000.0, user=ALICE)
        for name in ("", "*", "a" * 32_767, "é\u202e\n\x00", "User:*", "<default>"):
            for user, client_id in ((name, CLIENT), (ALICE, name)):
                assert quotas.produced(user, client_id, 1, 0.0) >= 0
                assert quotas.fetched(user, client_id, 1, 0.0) >= 0
                assert quotas.busy(user, client_id, 1.0, 0.0) >= 0

    def test_a_question_holds_nobody_up(self, quotas: ClientQuotas) -> None:
        """Many questions of many clients take little time each: all clients wait meanwhile."""
        if PRODUCED in self.keys:
            self.limit(quotas, PRODUCED, 1_000.0, user=ALICE)
        started = time.process_time()
        for number in range(QUESTIONS):
            quotas.produced(ALICE, f"client-{number}", 100, float(number))
        assert (time.process_time() - started) * 1000 / QUESTIONS < QUESTION_MS_MAX
