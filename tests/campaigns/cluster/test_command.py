"""What is refused before a node is started."""

from __future__ import annotations

import pytest

from campaigns.cluster import __main__ as command
from campaigns.cluster.__main__ import BAD_INPUT, main
from campaigns.cluster.namespaces import NoNamespacesError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--faults", "kill-leader,drown-leader"], "found drown-leader; allowed: rolling, or kill"),
        (
            ["--only", "redpanda"],
            "found redpanda; allowed: blumfeld, and kafka where --peer names its script",
        ),
        (["--only", "kafka"], "found kafka; allowed: blumfeld"),
        (["--client", "java"], "the Java client needs --peer"),
    ],
)
def test_wrong_input_is_refused_with_what_is_allowed(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == BAD_INPUT
    assert said in capsys.readouterr().err


def test_cuts_where_there_are_no_namespaces_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With six nodes, three of which are controllers."""

    def namespaces(nodes: int) -> None:
        raise NoNamespacesError(f"{nodes} namespaces: Operation not permitted")

    monkeypatch.setattr(command, "Namespaces", namespaces)
    assert main(["--faults", "cut-leader", "--layout", "apart"]) == BAD_INPUT
    assert "6 namespaces: Operation not permitted" in capsys.readouterr().err
