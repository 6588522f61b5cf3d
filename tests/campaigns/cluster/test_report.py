"""The report of a run."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from campaigns.clients.load.acknowledged_records import Account
from campaigns.cluster.gaps import Gap
from campaigns.cluster.report import (
    CampaignReport,
    ContenderReport,
    FaultReport,
    distribution_table,
)
from campaigns.figures import save


def fault(
    longest_s: float,
    *,
    recovered: bool = True,
    name: str = "kill-leader",
    named_s: tuple[float | None, ...] = (),
) -> FaultReport:
    """One of node 2, the controller; another partition felt less of it."""
    gaps = (Gap(0.98, 0.02, recovered=True), Gap(-0.01, longest_s, recovered=recovered))
    return FaultReport(
        fault=name,
        nodes=(2,),
        led=(4,),
        controller=2,
        at_s=12.0,
        down_s=15.0,
        in_sync_s=3.0,
        gaps=gaps,
        named_s=named_s,
        notes=("[a note]",),
    )


def report(*faults: FaultReport, wrong: tuple[str, ...] = (), lost: int = 0) -> ContenderReport:
    return ContenderReport(
        contender="kafka",
        commands=(("x",),),
        faults=faults,
        steady_s=0.012,
        seconds=99.0,
        sent=5000,
        given_up={"timed out": 2},
        account=Account(acked=4998, lost=lost),
        wrong=wrong,
    )


def printed(*tables: object) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("contender_report", "good"),
    [
        (report(fault(8.0)), True),
        (report(fault(8.0, recovered=False)), False),
        (report(fault(8.0), msgspec.structs.replace(fault(0.0), nodes=(), led=(), gaps=())), False),
        (report(fault(8.0), wrong=("message 1 is lost",)), False),
    ],
)
def test_a_run_is_good_if_nothing_is_wrong_or_left_out_and_all_recovered(
    contender_report: ContenderReport, good: bool
) -> None:
    assert contender_report.is_good is good


def test_a_distribution_holds_every_fault_of_its_class_and_one_without_an_end_counts_as_endless() -> None:
    kills = [fault(each / 100, named_s=(each / 1000, each / 100)) for each in range(1, 100)]
    never = fault(3.0, recovered=False, name="kill-controller", named_s=(0.1, None))
    rows = printed(distribution_table([report(*kills, never)])).splitlines()
    distributions = {
        cells[2:] for row in rows if len(cells := tuple(map(str.strip, row.split("│")[1:-1]))) > 2
    }
    everywhere, gap = "new leaders in every broker's metadata", "the client's longest gap"
    assert (everywhere, "99", "0.50", "0.90", "0.99", "0.99", "20%", "61%", "100%") in distributions
    for title in (everywhere, gap):
        assert (title, "100", "0.50", "0.90", "0.99", "inf", "20%", "60%", "99%") in distributions
    assert len(distributions) == 6


def test_a_result_file_reads_back(tmp_path: Path) -> None:
    whole = CampaignReport(
        created="2026-11-23T08:00:00Z",
        partitions=2,
        rate_per_s=1000.0,
        down_s=15.0,
        layout="combined",
        contenders=(report(fault(8.0)),),
    )
    save(tmp_path / "r.json", whole)
    assert msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=CampaignReport) == whole
