"""What ``blumfeld new`` writes serves on its first run, and its kit is red where its author must write."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from blumfeld.testing import EmbeddedBroker
from blumfeld_kit.templates.distribution import ROLES
from tests.everyday import slow
from tests.kit.templates.trial import Trial

RED = {
    "assignor": {"test_it_deals_as_you_promise"},
    "authenticator": {"test_no_password_is_kept_as_it_is"},
    "authorizer": {
        "test_a_right_is_one_principals_on_one_resource",
        "test_any_is_true_for_a_right_on_some_resource",
    },
    "decoder": {"test_it_reads_your_feed"},
    "group-protocol": {"test_a_second_member_is_let_in"},
    "object-store": {"test_another_client_sees_what_was_stored"},
    "quotas": {
        "test_a_client_that_waits_as_it_is_told_gets_its_rate",
        "test_a_produce_of_a_client_with_a_limit_counts",
        "test_a_strict_request_is_refused_while_there_is_a_wait_and_not_counted",
        "test_a_wait_is_never_longer_than_a_client_waits_for_an_answer",
        "test_an_address_opens_connections_at_its_rate",
    },
    "observer": {"test_it_tells_what_you_want_to_know"},
}
"""Role → the tests that are red until the author has written what they ask for. The README names them."""

# What the streams of asyncio can't do, by what is missing.
RED["transport"] = {
    # byte layers
    "test_a_broken_layer_closes_the_connection",
    "test_a_closing_connection_takes_nothing_from_a_resumed_layer",
    "test_a_large_frame_passes_a_slow_layer",
    "test_a_layer_is_attached_before_its_first_bytes_and_detached_at_the_end",
    "test_a_layer_is_handed_large_answers_in_pieces",
    "test_a_layer_whose_own_bytes_nobody_takes_is_not_read",
    "test_a_muted_connection_starts_nothing_that_a_resumed_layer_brings",
    "test_a_resumed_layer_that_is_broken_closes_the_connection",
    "test_both_ends_may_have_one",
    "test_bytes_of_a_resumed_layer_start_requests_and_are_sent",
    "test_everything_passes_through_the_layer",
    "test_nothing_is_read_while_a_layer_works_elsewhere",
    "test_requests_are_served_although_the_peer_ended_while_the_layer_worked",
    "test_small_parts_reach_the_layer_together",
    # rates, descriptors
    "test_a_crowd_is_let_in_one_by_one",
    "test_connections_beyond_the_rate_wait",
    "test_without_descriptors_others_are_served_and_who_waits_comes_later",
}

MEMORY = (
    "unfinished_frames_are_bounded_together",
    "a_frame_that_stands_still_gives_way_to_those_that_wait",
    "slow_readers_of_large_answers_are_bounded_together",
)
LEFT_OUT = {"storage": "not against_a_list", "transport": f"not ({' or '.join(MEMORY)})"}
"""Role → the tests of its kit that run, if not all. The others are red too, and take half a minute for it."""

LONG = {"transport"}
"""Kits that take long."""


@pytest.fixture
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    """A new plug-in of the role."""
    return Trial(request.param, tmp_path)


def exchanged(
    broker: EmbeddedBroker, client: Mapping[str, str] = {}, consumer: Mapping[str, str] = {}
) -> list[bytes | None]:
    """Produce three records, and return what a group's member reads of them."""
    server = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 2, **client}
    producer = Producer({**server, "acks": "all"})
    for value in (b"1", b"2", b"3"):
        producer.produce("ticks", value)
    assert producer.flush(20) == 0
    reader = Consumer({**server, "group.id": "readers", "auto.offset.reset": "earliest", **consumer})
    reader.subscribe(["ticks"])
    messages = [reader.poll(20) for _ in range(3)]
    reader.commit(asynchronous=False)
    reader.close()
    return [message.value() if message is not None else None for message in messages]


def each(*roles: object) -> pytest.MarkDecorator:
    """Try these roles."""
    return pytest.mark.parametrize("trial", roles, indirect=True)


def test_each_role_is_tried() -> None:
    assert {*RED, "storage"} == set(ROLES)


@pytest.mark.slow
@each("storage")
def test_the_kit_of_a_storage_is_red_where_a_claim_is_not_true_yet(trial: Trial) -> None:
    """It is green without its claims, as a storage in memory is: what is red with them is what they ask for."""
    claimed = trial.kit("-k", LEFT_OUT["storage"])
    file = trial.folder / "tests" / f"test_{trial.name}.py"
    text = file.read_text()
    claims = "    survives_restart = simulated_disk = survives_crash = True\n"
    assert claims in text
    file.write_text(text.replace(claims, ""))
    assert trial.kit()["failed"] == set()
    assert len(claimed["failed"]) > 25
    assert "test_cold_bytes_are_not_waited_for_on_the_loop" in claimed["skipped"], (
        "a copy in memory is allowed"
    )


@each(*(slow(role) if role in LONG else role for role in RED))
def test_the_kit_is_red_where_the_author_must_write_and_only_there(trial: Trial) -> None:
    role = trial.role
    outcomes = trial.kit("-k", LEFT_OUT.get(role, ""))
    assert outcomes["failed"] == RED[role]
    assert outcomes["passed"]
    readme = (trial.folder / "README.md").read_text()
    assert [name for name in RED[role] if name not in readme] == []


@each("assignor")
def test_a_broker_with_the_assignor_deals_by_it(trial: Trial) -> None:
    with trial.broker() as broker:
        protocol = {"group.protocol": "consumer", "group.remote.assignor": trial.name.replace("_", "-")}
        assert exchanged(broker, consumer=protocol) == [b"1", b"2", b"3"]


@each("observer")
def test_a_broker_with_the_observer_counts_requests(trial: Trial) -> None:
    with trial.broker(metrics={"bind": "127.0.0.1:0"}) as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]
        url = f"http://127.0.0.1:{broker.node.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
    (count,) = [line.split()[1] for line in lines if line.startswith("trial_observer_requests_total ")]
    assert float(count) > 3


@each("authenticator")
def test_a_broker_with_the_authenticator_lets_its_user_in(trial: Trial) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with trial.broker() as broker:
        assert exchanged(broker, {**login, "sasl.password": "a first try"}) == [b"1", b"2", b"3"]


@each("quotas")
def test_a_broker_with_the_quotas_serves(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]


@each("authorizer")
def test_a_broker_with_the_authorizer_serves_trusted_clients(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]
        assert broker.node.composition.authorizer is not None


@each("group-protocol")
def test_a_broker_with_the_group_protocol_has_groups_of_one_member(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]


@each("object-store")
def test_a_broker_with_the_object_store_serves(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]


@each("storage")
def test_a_broker_with_the_storage_keeps_records(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]


def test_what_was_written_is_tidy(tmp_path: Path) -> None:
    """ruff with an author's settings, which are none of ours."""
    trials = [Trial(role, tmp_path) for role in ROLES]
    for trial in trials:
        ran(
            trial.folder,
            "ruff",
            "check",
            "--no-cache",
            "--select",
            "E,F,W,I,B,UP,SIM,RUF",
            "--line-length",
            "120",
            ".",
        )


@each("transport")
def test_a_broker_with_the_transport_serves(trial: Trial) -> None:
    with trial.broker() as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]


@pytest.mark.slow
def test_what_was_written_is_typed(tmp_path: Path) -> None:
    """``mypy --strict`` at each author's place."""
    trials = [Trial(role, tmp_path) for role in ROLES]
    for trial in trials:
        ran(trial.folder, "mypy", "--cache-dir", str(tmp_path / "cache"), ".")


def ran(folder: Path, *command: str) -> None:
    """Run a tool on a folder; what it complains of is ours."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
