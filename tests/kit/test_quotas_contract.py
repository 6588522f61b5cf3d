"""The contract of quotas: the plug-in's own pass it, and each of some wrong ones fails it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld_kit.quotas_contract import CONNECTIONS, FETCHED, MUTATIONS, PRODUCED, QuotasContract
from blumfeld_quotas.client_quotas import ClientQuotas
from tests.plugins.quotas.test_client_quotas import Surroundings


class Limited(ClientQuotas):
    """The plug-in's own, with the surroundings that have its limits."""

    def __init__(self) -> None:
        self.surroundings = Surroundings()
        super().__init__(cast("Any", self.surroundings))


class TestOwn(QuotasContract):
    def make_quotas(self) -> Limited:
        return Limited()

    def limit(
        self, quotas: Any, key: str, rate: float, *, user: str | None = None, host: str | None = None
    ) -> None:
        kind, name = ("ip", host) if key == CONNECTIONS else ("user", user)
        quotas.surroundings.set(key, rate, (kind, name))


class Generous(Limited):
    """Counts nine bytes in ten."""

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        return super().produced(user, client_id, size_bytes * 9 // 10, now_ms)


class Patient(Limited):
    """Tells a client to wait for minutes."""

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        return super().produced(user, client_id, size_bytes, now_ms) * 100


class Shared(Limited):
    """Takes every user for one."""

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        return super().produced("alice-of-the-contract", client_id, size_bytes, now_ms)


class CountsTheRefused(Limited):
    """Counts what it refuses."""

    def mutated(self, user: str, client_id: str, count: int, now_ms: float, *, strict: bool) -> float | None:
        waits_ms = super().mutated(user, client_id, count, now_ms, strict=False)
        return None if strict and waits_ms else waits_ms


class Empty(Limited):
    """Lets no fetch have a byte."""

    def fetch_bytes_max(self, user: str, client_id: str) -> float | None:
        return 0.0


class Forgets(Limited):
    """Takes no client's Produce requests for limited."""

    def limits_produce(self, user: str, client_id: str) -> bool:
        return False


class Steady(Limited):
    """Says that nothing has changed."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "generation" or not hasattr(self, name):
            super().__setattr__(name, value)


class Restless(Limited):
    """Says that all has changed whenever it is asked."""

    def limits_produce(self, user: str, client_id: str) -> bool:
        self.generation += 1
        return super().limits_produce(user, client_id)


class Agrees(Limited):
    """Lets every Produce request be."""

    def may_produce(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> bool:
        return True


class Grudge(Limited):
    """Always has a client wait."""

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        return super().produced(user, client_id, size_bytes, now_ms) or 1.0


class Open(Limited):
    """Lets an address open what it likes."""

    def connected(self, host: str, now_ms: float) -> float:
        return 0.0


RATE = (100_000.0, 5_000, 100_000.0)


@pytest.mark.parametrize(
    ("wrong", "test", "arguments"),
    [
        (Generous, "test_a_client_that_waits_as_it_is_told_gets_its_rate", (PRODUCED, *RATE)),
        (Patient, "test_a_wait_is_never_longer_than_a_client_waits_for_an_answer", ()),
        (Shared, "test_a_limit_of_one_user_is_no_limit_of_another", ()),
        (CountsTheRefused, "test_a_strict_request_is_refused_while_there_is_a_wait_and_not_counted", ()),
        (Empty, "test_a_fetch_may_always_have_some_bytes", ()),
        (Empty, "test_without_a_limit_nobody_waits", ()),
        (Forgets, "test_a_produce_of_a_client_with_a_limit_counts", (PRODUCED,)),
        (Steady, "test_a_produce_of_a_client_with_a_limit_counts", (PRODUCED,)),
        (Restless, "test_a_produce_of_a_client_with_a_limit_counts", (PRODUCED,)),
        (Grudge, "test_a_client_that_rests_is_served_again", ()),
        (Open, "test_an_address_opens_connections_at_its_rate", ()),
        (Agrees, "test_a_produce_that_may_be_is_told_no_wait_and_asking_counts_nothing", ()),
    ],
)
def test_wrong_quotas_fail_it(wrong: type[Limited], test: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(AssertionError):
        getattr(TestOwn(), test)(wrong(), *arguments)


def test_what_quotas_have_not_is_not_tried() -> None:
    class Some(TestOwn):
        keys = (FETCHED,)

    with pytest.raises(pytest.skip.Exception, match=MUTATIONS):
        Some().test_a_strict_request_is_refused_while_there_is_a_wait_and_not_counted(Limited())
