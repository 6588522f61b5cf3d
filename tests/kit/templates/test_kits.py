"""What ``blumfeld new`` writes serves on its first run, and its kit is red where its author must write."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from blumfeld.testing import EmbeddedBroker
from blumfeld_kit.templates.distribution import ROLES
from tests.everyday import slow
from tests.kit.templates.trial import Trial

RED = {
    "assignor": {"test_it_deals_as_you_promise"},
    "authorizer": {
        "test_a_right_is_one_principals_on_one_resource",
        "test_any_is_true_for_a_right_on_some_resource",
    },
    "decoder": {"test_it_reads_your_feed"},
    "group-protocol": {"test_a_second_member_is_let_in"},
    "object-store": {"test_another_client_sees_what_was_stored"},
    "observer": {"test_it_tells_what_you_want_to_know"},
}
"""Role → the tests that are red until the author has written what they ask for. The README names them."""

# What a storage in memory can't hold, by the claim that has it tried.
RED["storage"] = {
    # survives_restart
    "test_a_deleted_log_stays_deleted",
    "test_a_log_that_is_set_aside_frees_its_name",
    "test_another_cluster_or_node_is_refused",
    "test_each_partition_has_its_own_again",
    "test_everything_is_there_after_a_clean_stop",
    "test_everything_written_survives_the_process",
    "test_high_watermarks_are_remembered",
    "test_high_watermarks_are_those_of_the_last_checkpoint",
    "test_killed_behind_a_write_it_has_all_that_was_acknowledged",
    "test_killed_within_a_write_it_has_all_that_was_acknowledged",
    "test_a_flush_reaches_the_device",
    "test_a_write_that_fails_is_never_acknowledged",
    "test_leader_epochs_stay_with_their_batches",
    "test_small_files_are_as_they_were_written",
    "test_two_storages_on_one_directory_are_refused",
    # simulated_disk
    "test_a_cut_back_that_fails_takes_the_directory_offline",
    "test_a_failed_or_short_write_is_undone",
    "test_a_failing_sync_fails_the_outcomes_that_wait_for_it",
    "test_a_full_disk_costs_what_does_not_fit",
    "test_a_sync_proves_nothing_of_what_is_written_behind_a_cut",
    "test_a_sync_that_fails_takes_the_directory_offline",
    "test_cold_bytes_are_not_waited_for_on_the_loop",
    "test_every_flush_that_waits_for_a_failing_sync_fails",
    "test_outcomes_come_in_the_order_of_the_writes",
    "test_the_flushed_end_is_never_ahead_of_the_sync",
    "test_what_a_failed_write_left_is_found_by_no_recovery",
    # survives_crash
    "test_a_committed_file_survives_a_power_cut",
    "test_a_flush_makes_an_unsynced_file_last",
    "test_a_log_that_is_made_anew_has_nothing_of_its_namesake",
    "test_a_power_cut_leaves_a_prefix_with_all_that_was_flushed",
    "test_a_power_cut_within_a_commit_leaves_the_old_file_or_the_new_one",
    "test_no_crash_loses_what_was_promised",
}

LEFT_OUT = {"storage": ["--deselect", "tests/test_trial_storage.py::TestTrialStorage::test_against_a_list"]}
"""Red too, but half a minute is spent on the shortest example."""

LONG = {"storage"}
"""Kits that take long."""


@pytest.fixture
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    """A new plug-in of the role."""
    return Trial(request.param, tmp_path)


def exchanged(broker: EmbeddedBroker, **consumer: str) -> list[bytes | None]:
    """Produce three records, and return what a group's member reads of them."""
    server = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 2}
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
    assert set(RED) == set(ROLES)


@each(*(slow(role) if role in LONG else role for role in RED))
def test_the_kit_is_red_where_the_author_must_write_and_only_there(trial: Trial) -> None:
    role = trial.role
    outcomes = trial.kit(*LEFT_OUT.get(role, ()))
    assert outcomes["failed"] == RED[role]
    assert outcomes["passed"]
    readme = (trial.folder / "README.md").read_text()
    assert role == "storage" or [name for name in RED[role] if name not in readme] == []


@each("assignor")
def test_a_broker_with_the_assignor_deals_by_it(trial: Trial) -> None:
    with trial.broker() as broker:
        protocol = {"group.protocol": "consumer", "group.remote.assignor": trial.name.replace("_", "-")}
        assert exchanged(broker, **protocol) == [b"1", b"2", b"3"]


@each("observer")
def test_a_broker_with_the_observer_counts_requests(trial: Trial) -> None:
    with trial.broker(metrics={"bind": "127.0.0.1:0"}) as broker:
        assert exchanged(broker) == [b"1", b"2", b"3"]
        url = f"http://127.0.0.1:{broker.node.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
    (count,) = [line.split()[1] for line in lines if line.startswith("trial_observer_requests_total ")]
    assert float(count) > 3


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
