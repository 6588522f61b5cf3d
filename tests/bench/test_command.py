"""The verb: what it takes, what it refuses before anything starts, and what it leaves behind. No server is started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import blumfeld_bench.runs.session
from blumfeld.testing.endings import TOLD_TO_END
from blumfeld_bench.command import app, chosen
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.result import Result, load_result, save_result
from blumfeld_bench.runs.session import Options, SessionError
from blumfeld_bench.runs.watcher import Watcher
from blumfeld_bench.terminal import with_common
from blumfeld_bench.workload import Workload, WorkloadError
from tests.bench.synthetic import CATCH_UP, OPEN, synthetic_result

Ran = list[dict[str, Any]]


def bench(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The requests to a session, which answers with a made-up result."""
    return pretend(monkeypatch, lambda: synthetic_result(rounds=2, steps=(OPEN,)))


def pretend(monkeypatch: pytest.MonkeyPatch, outcome: Callable[[], Result]) -> Ran:
    runs: Ran = []

    def session(
        specs: Sequence[VariantSpec], workload: Workload, driver: object, options: Options, watcher: Watcher
    ) -> Result:
        runs.append({"specs": specs, "workload": workload, "options": options})
        return outcome()

    monkeypatch.setattr(blumfeld_bench.runs.session, "run_session", session)
    return runs


def test_variants_need_no_verb(ran: Ran) -> None:
    status, output = bench("default", "default --label other", "-w", "ticks", "--out", "r.json")
    assert status == 0
    assert [spec.label for spec in ran[0]["specs"]] == ["default", "other"]
    assert ran[0]["workload"].name == "ticks"
    assert load_result(Path("r.json")).rounds == 2
    assert "ack p99" in output
    assert "blumfeld bench report r.json" in output


def test_options_may_come_before_variants(ran: Ran) -> None:
    status, _ = bench("--quick", "--seed", "7", "--rounds", "3", "--no-system-calls", "default")
    assert status == 0
    options = ran[0]["options"]
    assert (options.quick, options.seed, options.rounds, options.system_calls) == (True, 7, 3, False)
    (path,) = Path().glob("bench-ticks-*.json")
    assert load_result(path)


def test_steps_and_driver_are_chosen(ran: Ran) -> None:
    assert bench("default", "--step", "5,000/s", "--driver", "librdkafka")[0] == 0
    workload = ran[0]["workload"]
    assert [step.name for step in workload.steps] == ["5,000/s"]
    assert workload.driver == "librdkafka"


def test_common_overrides_lie_beneath_a_variants_own(ran: Ran) -> None:
    common = "storage.plugin=storage_memory"
    given = ("default", "default --set storage.plugin=storage_local")
    assert bench(*given, "--set", common)[0] == 0
    overrides = [spec.variant.overrides for spec in ran[0]["specs"]]
    assert overrides == [(common,), (common, "storage.plugin=storage_local")]


def test_common_overrides_leave_a_foreign_broker_alone() -> None:
    foreign = "kafka://127.0.0.1:0 --start 'x {port}'"
    assert with_common(foreign, ["a.b=1"]) == foreign
    assert with_common("'my file.toml' --label x", ['config."a.b"=1']) == (
        """'my file.toml' --set 'config."a.b"=1' --label x"""
    )
    assert with_common("unbalanced '", ["a.b=1"]) == "unbalanced '"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["absent.toml"], "absent.toml: no such file"),
        (["default", "-w", "nothing"], "nothing is neither a file nor one of"),
        (["default", "--step", "9/s"], "ticks has no step 9/s; allowed: "),
        (["default", "--driver", "magic"], "--driver: found magic; allowed: wire, librdkafka"),
        (["default --set no.such=1"], "no"),
        (["default", "--set", "node.id=x"], 'node.id: found "x"; allowed: an integer'),
        (["kafka://127.0.0.1:0"], "say how it is started"),
        (["default", "--out", "no/such/r.json"], "found no such folder"),
        (["default", "--out", "."], "found a folder"),
        (["default", "--folder", "nowhere"], "found no such folder"),
        (["report", "absent.json"], "absent.json: No such file or directory"),
        (["rerun", "absent.json"], "absent.json: No such file or directory"),
        (["show", "bad.json"], "is not a result of blumfeld bench"),
    ],
)
def test_what_can_not_be_run_is_refused_before_anything_starts(
    ran: Ran, arguments: list[str], complaint: str
) -> None:
    Path("bad.json").write_text("{}")
    status, output = bench(*arguments)
    assert (status, ran) == (2, [])
    assert output.startswith("blumfeld: ")
    assert complaint in output
    assert [path.name for path in Path().iterdir()] == ["bad.json"]


def test_a_missing_library_is_named_with_what_installs_it(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld_bench.terminal.LIBRARIES", ("hdrh", "no_such_library"))
    status, output = bench("default")
    assert (status, ran) == (2, [])
    assert output == "blumfeld: no_such_library not installed: pip install blumfeld-bench\n"


def test_an_interrupted_run_is_saved_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(
        monkeypatch,
        lambda: msgspec.structs.replace(synthetic_result(rounds=1, steps=(OPEN,)), interrupted=True),
    )
    status, output = bench("default", "--out", "r.json")
    assert status == 130
    assert "Interrupted" in output
    assert load_result(Path("r.json")).interrupted


def test_a_run_that_measured_nothing_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda: msgspec.structs.replace(synthetic_result(rounds=1), measured=()))
    assert bench("default", "--out", "r.json")[0] == 1
    assert not Path("r.json").exists()


def test_a_run_that_could_not_be_made_is_a_line_and_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Result:
        raise SessionError("default: it did not start")

    pretend(monkeypatch, fail)
    assert bench("default") == (1, "blumfeld: default: it did not start\n")


def test_a_result_is_run_again_as_it_was(ran: Ran) -> None:
    was = synthetic_result(rounds=3, seed=9, labels=("default",), steps=(OPEN,))
    manifest = '[storage]\nplugin = "storage_memory"\n'
    variants = tuple(msgspec.structs.replace(variant, manifest=manifest) for variant in was.variants)
    save_result(msgspec.structs.replace(was, variants=variants, pinned=True), Path("r.json"))
    assert bench("rerun", "r.json", "--out", "again.json")[0] == 0
    options = ran[0]["options"]
    assert (options.rounds, options.seed, options.system_calls, options.pin) == (3, 9, True, True)
    assert ran[0]["workload"] == was.workload
    assert ran[0]["specs"][0].variant.manifest == manifest
    assert Path("again.json").exists()


def test_a_report_is_made_beside_its_result() -> None:
    save_result(synthetic_result(rounds=1, steps=(CATCH_UP,), labels=("alone",)), Path("r.json"))
    status, output = bench("report", "r.json")
    assert status == 0
    assert output.startswith("r-report/index.html and ")
    assert Path("r-report/index.html").exists()
    assert list(Path("r-report").glob("*.png"))


def test_a_report_that_can_not_be_written_is_refused() -> None:
    save_result(synthetic_result(rounds=1, steps=(CATCH_UP,), labels=("alone",)), Path("r.json"))
    Path("taken").write_text("")
    status, output = bench("report", "r.json", "--out", "taken")
    assert status == 2
    assert output.startswith("blumfeld: taken: ")


def test_a_result_is_shown_again() -> None:
    save_result(synthetic_result(rounds=1, steps=(OPEN,)), Path("r.json"))
    status, output = bench("show", "r.json")
    assert status == 0
    assert "ack p99" in output


def test_workloads_are_listed_with_their_steps() -> None:
    status, output = bench("workloads")
    assert status == 0
    for name in ("ticks", "firehose", "fanout", "connections", "catch-up", "replicated", "spread"):
        assert name in output
    assert "steps: 1,000/s" in output


def test_help_shows_the_verbs_and_the_options_of_a_run() -> None:
    status, output = bench("--help")
    assert status == 0
    for part in ("report", "rerun", "workloads", "--quick", "--set"):
        assert part in output


def test_no_argument_is_a_request_for_help() -> None:
    assert "--quick" in bench()[1]


def test_a_step_is_chosen_by_its_whole_name() -> None:
    workload = synthetic_result(rounds=1).workload
    assert [step.name for step in chosen(workload, None, ["1,000/s"]).steps] == ["1,000/s"]
    assert chosen(workload, None, []) == workload
    with pytest.raises(WorkloadError, match="no step 1,000"):
        chosen(workload, None, ["1,000"])


def test_the_verb_is_listed_without_loading_what_it_needs() -> None:
    """``blumfeld --help`` imports the module; numbers and plots wait until they are used."""
    code = "import sys, blumfeld_bench.command; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True
    )
    assert not {"numpy", "hdrh", "matplotlib", "confluent_kafka"} & set(done.stdout.split())


def test_a_run_that_is_told_to_end_unwinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no ``finally`` runs, and the servers of the session go on."""
    ended: list[str] = []

    def told() -> Result:
        try:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("SIGTERM had no effect")
        finally:
            ended.append("servers")

    pretend(monkeypatch, told)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert bench("default")[0] == TOLD_TO_END
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended == ["servers"]
