"""The outcomes in what the runner of librdkafka's tests prints."""

from __future__ import annotations

import pytest

from campaigns.suites.librdkafka.summary import outcomes_of, part_of, whole_of
from campaigns.suites.librdkafka.unsupported import reason_to_skip
from campaigns.suites.outcomes import Outcome

BEGUN = "\x1b[36m[0103_transactions / 0.000s] ===== Running test 0103_transactions =====\n"
SUMMARY = f"""{BEGUN}TEST 20261128174827 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[32m <MAIN>                    |     PASSED |   9.100s \x1b[0m|
|\x1b[32m 0103_transactions         |     PASSED |  10.250s \x1b[0m|
|\x1b[31m 0107_topic_recreate       |     FAILED |   1.000s \x1b[0m|\x1b[31m 3 of 9\x1b[0m
|\x1b[36m 0103_transactions_local   |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Filtered due to negative test flags\x1b[0m
|\x1b[36m 0045_subscribe_mock       |    SKIPPED |   0.000s \x1b[0m|\x1b[36m \x1b[0m
|\x1b[36m 0101_fetch_from_follower  |    SKIPPED |   0.120s \x1b[0m|\x1b[36m needs racks\x1b[0m
#==================================================================#
"""
DEATH = """[0103_transactions / 0.402s] TEST FAILURE
### Test "0103_transactions (do_test_misuse:49)" failed at 0103-transactions.c:49:misuse() at Sat 2026: ###
not fatal
test-runner: test.c:7706: test_fail0: Assertion `0' failed.
"""


def test_a_test_that_the_runner_leaves_out_is_no_outcome() -> None:
    assert outcomes_of(SUMMARY) == [
        Outcome("0103_transactions", "passed", 10.25),
        Outcome("0107_topic_recreate", "failed", 1.0, "3 of 9"),
        Outcome("0101_fetch_from_follower", "skipped", 0.12, "needs racks"),
    ]


def test_what_a_dying_runner_had_begun_and_not_passed_has_failed() -> None:
    before = "[x] ===== Running test 0045_many =====\n[x] ===== Test 0045_many PASSED =====\n"
    assert outcomes_of(before + BEGUN + DEATH) == [
        Outcome("0045_many", "passed"),
        Outcome("0103_transactions", "failed", reason="0103-transactions.c:49: not fatal"),
    ]
    [killed] = outcomes_of(BEGUN + "still waiting\n")
    assert killed.reason == "it did not end: still waiting"


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        (["passed", "failed", "skipped"], "failed"),
        (["passed", "skipped"], "passed"),
        (["skipped"], "skipped"),
    ],
)
def test_a_test_in_parts_fails_with_one_of_them(verdicts: list[str], whole: str) -> None:
    parts = [Outcome(f"0081_admin/{verdict}", verdict, 2.0) for verdict in verdicts]
    assert whole_of("0081_admin", parts) == Outcome("0081_admin", whole, 2.0 * len(parts))


def test_a_part_has_its_own_name() -> None:
    [outcome] = part_of([Outcome("0081_admin", "failed", 1.0, "why")], "ListOffsets")
    assert outcome == Outcome("0081_admin/ListOffsets", "failed", 1.0, "why")


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("0171_share_consumer_consume", "share groups"),
        ("0081_admin/DescribeAcls", "ACLs"),
        ("0081_admin/IncrementalAlterConfigs", "Kerberos"),
        ("0081_admin/DescribeConfigs", ""),
        ("0103_transactions", ""),
    ],
)
def test_what_asks_for_an_absent_feature_isnt_run(test: str, reason: str) -> None:
    assert reason in reason_to_skip(test)
    assert bool(reason) == bool(reason_to_skip(test))


def test_secured_nodes_have_acls_and_credentials() -> None:
    for part in ("DescribeAcls", "UserScramCredentials"):
        assert reason_to_skip(f"0081_admin/{part}")
        assert not reason_to_skip(f"0081_admin/{part}", secured=True)
