"""The list of campaigns is what there is, and what is typed becomes the right command lines."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from campaigns.__main__ import BAD_CALL, app
from campaigns.catalogue import CAMPAIGNS, Campaign, Run
from campaigns.commands import AbsentError, command_lines
from campaigns.references import PLACES, find_references
from tests.everyday import for_each

ROOT = Path(__file__).resolve().parents[2]
NONE = dict.fromkeys(PLACES, ())
"""No reference program is there."""


def programs() -> set[str]:
    """Every module of campaigns/ that a person can run: it parses arguments. Children of campaigns don't."""
    names = set()
    for path in (ROOT / "campaigns").rglob("*.py"):
        source = path.read_text()
        named = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
        if named & {"parse_args", "parse_known_args"} and "__main__" in source:
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.add(".".join(parts[:-1] if parts[-1] == "__main__" else parts))
    return names


def test_every_program_of_the_folder_is_in_the_list() -> None:
    listed = {program.module for campaign in CAMPAIGNS.values() for program in campaign.runs}
    assert {module for module in listed if module.startswith("campaigns.")} == programs()


@for_each(CAMPAIGNS.values())
def test_what_is_listed_is_there_and_says_what_it_shows(campaign: Campaign) -> None:
    assert campaign.sentence.endswith(".")
    assert campaign.duration
    for program in campaign.runs:
        if program.module.endswith(".py"):
            assert (ROOT / program.module).is_file()
        else:
            assert importlib.util.find_spec(program.module) is not None


def test_without_a_name_every_campaign_is_printed() -> None:
    printed = CliRunner().invoke(app, [])
    assert printed.exit_code == 0
    for campaign in CAMPAIGNS.values():
        assert campaign.name in printed.output
        assert campaign.duration in printed.output


def test_a_name_that_isnt_there_is_refused_with_the_nearest_one() -> None:
    refused = CliRunner().invoke(app, ["bad-inputs"])
    assert refused.exit_code == BAD_CALL
    assert "no campaign has the name 'bad-inputs'" in refused.output
    assert "Did you mean bad-input?" in refused.output


def test_a_campaign_without_its_reference_is_refused_with_the_path(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["--references", str(tmp_path), "closed-loop"])
    assert refused.exit_code == BAD_CALL
    assert f"closed-loop needs {PLACES['loadgen']}" in refused.output
    assert str(tmp_path) in refused.output


def test_options_behind_a_name_are_that_campaigns() -> None:
    """Also ``--help``, and from a process of its own as a person types it."""
    command = [sys.executable, "-m", "campaigns", "bad-input", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: python -m campaigns bad-input")
    assert "--only" in done.stdout


def test_options_replace_defaults_and_leave_what_is_fixed() -> None:
    campaign = Campaign("a", "A.", "1 min", (Run("m", ("verb", "--out", "f"), ("--seeds", "0-9", "--all")),))
    line = [sys.executable, "-m", "campaigns.unwinding", "m"]
    assert command_lines(campaign, [], NONE) == [[*line, "verb", "--out", "f", "--seeds", "0-9", "--all"]]
    assert command_lines(campaign, ["--seeds", "3"], NONE) == [[*line, "verb", "--out", "f", "--seeds", "3"]]
    assert command_lines(campaign, ["--out=g"], NONE) == [[*line, "verb", "--out=g"]]


def test_two_runs_that_options_make_equal_are_one() -> None:
    """So `instructions --load tail` counts once, with the composition that the options name."""
    assert len(command_lines(CAMPAIGNS["instructions"], [], NONE)) == 2
    assert len(command_lines(CAMPAIGNS["instructions"], ["--load", "tail"], NONE)) == 1


def test_references_are_added_where_they_are_and_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_PEER", raising=False)
    absent = find_references(tmp_path)
    assert absent == NONE
    for name in (
        "peer/kafka/kafka-peer",
        "floor/floor_epoll.py",
        "market-data/hftbacktest/spot/btcusdt_20240801.gz",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    references = find_references(tmp_path)
    peer = str(tmp_path / "peer/kafka/kafka-peer")
    assert command_lines(CAMPAIGNS["startup"], [], absent)[0][4:] == []
    assert command_lines(CAMPAIGNS["startup"], ["--rounds", "1"], references)[0][4:] == [
        "--peer",
        peer,
        "--rounds",
        "1",
    ]
    assert command_lines(CAMPAIGNS["startup"], ["--peer", "mine"], references)[0][4:] == ["--peer", "mine"]
    assert command_lines(CAMPAIGNS["compare"], ["--peer", "mine"], absent)[0][4:] == ["--peer", "mine"]
    with pytest.raises(AbsentError, match="peer"):
        command_lines(CAMPAIGNS["compare"], [], absent)
    floor = str(tmp_path / "floor/floor_epoll.py")
    assert command_lines(CAMPAIGNS["instructions"], [], references)[0][4:] == ["--floor", floor]
    spot = str(tmp_path / "market-data/hftbacktest/spot/btcusdt_20240801.gz")
    assert command_lines(CAMPAIGNS["archive-oracle"], [], references)[0][4:] == ["oracle", "--capture", spot]
    monkeypatch.setenv("KAFKA_PEER", "elsewhere")
    assert find_references(tmp_path)["peer"] == ("elsewhere",)
