"""The rebalance bench as a whole: small groups of all protocols on an embedded broker, settings that a server did
not take, and what is said of a run.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.command import app
from blumfeld_bench.plan.variants import VariantError
from blumfeld_bench.rebalance.command import specs_with
from blumfeld_bench.rebalance.findings import Key, cautions_of, ratio_of, verdicts_of
from blumfeld_bench.rebalance.plots import write_rebalance
from blumfeld_bench.rebalance.result import RebalanceResult, Sample, Spread, load_rebalance, save_rebalance
from blumfeld_bench.rebalance.session import Session
from blumfeld_bench.rebalance.settings import PROTOCOLS, SCENARIOS, Settings, differences
from blumfeld_bench.rebalance.table import rebalance_table
from blumfeld_bench.result import Variant
from tests.bench.synthetic import MACHINE

SMALL = Settings(
    sizes=(10,),
    session_timeout_ms=1_200,
    heartbeat_interval_ms=100,
    initial_rebalance_delay_ms=50,
    assignment_interval_ms=20,
    offsets_partitions=1,
)

TRIES = 4


def config_of(settings: Settings) -> dict[str, object]:
    return {
        key: int(value) if value.isdigit() else value.split(",") for key, value in settings.server().items()
    }


def run(settings: Settings, port: int, rounds: int = 1) -> RebalanceResult:
    specs = specs_with([f"kafka://127.0.0.1:{port} --running --label here"], settings)
    return Session(specs, settings, rounds, None, lambda line: None).run()


def test_a_cluster_is_refused() -> None:
    with pytest.raises(VariantError, match="measures one node; found --nodes"):
        specs_with(["default", "default --nodes 3"], SMALL)


@pytest.mark.slow
def test_groups_of_all_protocols_are_formed_broken_and_stable_again(tmp_path: Path) -> None:
    """A machine that stands still for as long as a session disturbs it: then it is measured again."""
    for _ in range(TRIES):
        with EmbeddedBroker(config=config_of(SMALL)) as broker:
            result = run(SMALL, broker.port)
        if not result.failures and all(
            (entry.contested, entry.faults) == (0, {}) for entry in result.samples
        ):
            break
    assert result.failures == ()
    samples = {(entry.protocol, entry.scenario): entry for entry in result.samples}
    assert set(samples) == {(protocol, event) for protocol in PROTOCOLS for event in SCENARIOS[:3]}
    for (protocol, event), outcome in samples.items():
        assert outcome.stable_s > 0
        assert outcome.converged_s >= outcome.stable_s
        assert (outcome.contested, outcome.faults) == (0, {})
        assert outcome.members == {"kill one": 9, "add one": 10, "one leaves": 9}[event]
        assert (outcome.session_s > 0) == (event == "kill one")
        assert outcome.members_pause.count == 9
        paused = outcome.members_pause.paused
        assert paused == 9 if protocol == "eager" else paused == 0, (protocol, event)
        assert outcome.moved_pause.count >= 2
    killed = samples["KIP-848", "kill one"]
    assert killed.moved_pause.most >= killed.session_s, "nobody reads them while the session lasts"
    path = tmp_path / "r.json"
    save_rebalance(result, path)
    assert load_rebalance(path.read_bytes()) == result


def test_a_server_with_other_settings_is_not_measured() -> None:
    with EmbeddedBroker(config={**config_of(SMALL), "group.consumer.heartbeat.interval.ms": 200}) as broker:
        result = run(SMALL, broker.port)
    assert result.samples == ()
    assert "group.consumer.heartbeat.interval.ms: 200, should be 100" in result.failures[0].error


def test_assignors_are_known_by_kafkas_names_of_their_classes() -> None:
    wanted = {"group.consumer.assignors": "uniform,range", "offsets.topic.num.partitions": "50"}
    kafka = "org.apache.kafka.coordinator.group.assignor."
    configs = {"group.consumer.assignors": f"{kafka}UniformAssignor,{kafka}RangeAssignor"}
    assert differences(wanted, configs) == ["offsets.topic.num.partitions: not reported, should be 50"]


def test_settings_go_into_manifests_and_start_commands() -> None:
    from blumfeld_bench.rebalance.session import configured

    texts = ["default", "default", "kafka://127.0.0.1:0 --start 'serve {port} {settings}'"]
    ours, twin, theirs = (configured(spec, SMALL) for spec in specs_with(texts, SMALL))
    assert (ours.label, twin.label) == ("default", "default (2)")
    assert 'config."group.consumer.session.timeout.ms"=1200' in ours.variant.overrides
    assert "group.consumer.session.timeout.ms=1200" in theirs.variant.command
    assert "{settings}" not in theirs.variant.command


def sample(variant: str, number: int, protocol: str, stable_s: float, **other: object) -> Sample:
    pause = Spread.of([0, 5_000_000] if protocol == "eager" else [0, 0])
    values: dict[str, object] = {
        "variant": variant,
        "round": number,
        "protocol": protocol,
        "size": 10,
        "scenario": "add one",
        "members": 11,
        "partitions": 20,
        "session_s": 0.0,
        "stable_s": stable_s,
        "converged_s": stable_s,
        "known_s": stable_s + 1,
        "members_pause": pause,
        "moved_pause": pause,
        "pauses_ms": (0.0, 5.0) if protocol == "eager" else (0.0, 0.0),
        "unowned_s": 0.1,
        "cpu_s": 0.01 * stable_s,
        "rest_cpu": 0.01,
        "rss_bytes": 10**8,
        "driver_busy": 0.01,
        "contested": 0,
        "faults": {},
    }
    return msgspec.convert({**values, **other}, Sample)


def synthetic(**other: object) -> RebalanceResult:
    """Four rounds; ``fast`` takes half of ``slow``'s time in each."""
    samples = tuple(
        sample(variant, number, protocol, seconds * factor * (1 + 0.001 * number), **other)
        for number in range(4)
        for variant, factor in (("slow", 1.0), ("fast", 0.5 + 0.001 * number))
        for protocol, seconds in (("eager", 2.0), ("cooperative", 3.0), ("KIP-848", 1.0))
    )
    return RebalanceResult(
        experiment="rebalance",
        blumfeld="0",
        created="2026-11-21T00:00:00Z",
        machine=MACHINE,
        settings=Settings(sizes=(10,), scenarios=("add one",)),
        rounds=4,
        variants=tuple(Variant(label=label, kind="foreign", given=label) for label in ("slow", "fast")),
        configs={"slow": {"a": "1"}, "fast": {"a": "1"}},
        samples=samples,
    )


def test_servers_are_compared_within_a_protocol_and_protocols_within_a_server() -> None:
    verdicts = {
        (verdict.step, verdict.variant, verdict.measure.key): verdict for verdict in verdicts_of(synthetic())
    }
    faster = verdicts["eager", "fast", "stable"]
    assert faster.different
    assert 0.49 < faster.ratio < 0.52
    assert faster.sentence.startswith("fast's time to stable is 0.5")
    protocol = verdicts["on slow", "KIP-848", "stable"]
    assert protocol.different
    assert 0.49 < protocol.ratio < 0.51
    assert ratio_of(synthetic(), "fast", Key(10, "add one", "eager")) == pytest.approx(0.5015)


def test_what_makes_figures_doubtful_is_said() -> None:
    assert list(cautions_of(synthetic())) == []
    said = "\n".join(cautions_of(synthetic(driver_busy=0.9, contested=1, faults={"UNKNOWN_MEMBER_ID": 2})))
    assert "the driver was busy" in said
    assert "24 times a member was given a partition that another one still had" in said
    assert "fast UNKNOWN_MEMBER_ID: 24 times" in said


def test_a_result_becomes_a_table_and_a_page_with_plots(tmp_path: Path) -> None:
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(rebalance_table(synthetic()))
    text = shown.export_text()
    assert "1.00 (0.50×)" in text
    assert "a=1" in text
    page, *plots = write_rebalance(synthetic(), tmp_path / "out")
    assert [path.name for path in plots] == ["stable-add-one.png", "pauses-add-one.png"]
    written = page.read_text()
    assert "| 10 | add one | eager | slow | 2.00 |" in written
    assert "![Time to stable in s over the number of members, event: add one." in written
    assert "eager 50% paused" in written


def test_report_and_show_know_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    save_rebalance(synthetic(), path)
    shown = CliRunner().invoke(app, ["show", str(path)])
    assert (shown.exit_code, "KIP-848" in shown.output) == (0, True)
    made = CliRunner().invoke(app, ["report", str(path)])
    assert (made.exit_code, (tmp_path / "r-report" / "rebalance.md").exists()) == (0, True)


def test_a_protocol_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    out = str(tmp_path / "r.json")
    done = CliRunner().invoke(app, ["rebalance", "default", "--protocol", "lazy", "--out", out])
    assert (done.exit_code, "found lazy; allowed: eager" in done.output) == (2, True)
