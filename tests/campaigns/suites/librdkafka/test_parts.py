"""The parts of a test, in its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.suites.librdkafka import program
from tests.campaigns.suites.librdkafka.test_program import GIVEN

SOURCE = """
static void do_test_CreateTopics(const char *what) {
static void
do_test_CreateAcls(rd_kafka_t *rk) {
static void do_test_apis(rd_kafka_type_t cltype) {
        do_test_CreateAcls(rk);
"""


def test_parts_are_found_whose_name_stands_on_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "0081-admin.c").write_text(SOURCE)
    monkeypatch.setattr(program, "_ready", lambda: tmp_path)
    monkeypatch.setattr(program, "_version_of", lambda _: "0")
    runs = program.RdkafkaSuite(GIVEN)._runs(["0081_admin"])
    assert [run.name for run in runs] == ["0081_admin/CreateTopics", "0081_admin/CreateAcls"]
