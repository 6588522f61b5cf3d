"""What README.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blumfeld.testing import EmbeddedBroker

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
CLIENTS = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Consumer(" in block]


def test_the_snippet_prints_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the commands above it were typed or not: it has a topic of its own."""
    [snippet] = CLIENTS
    [said] = re.findall(r"print\(.*\)  # (.*)", snippet)
    typed = re.findall(r"-t (\w+)", README.partition(snippet)[0])
    assert typed
    assert not any(f'"{topic}"' in snippet for topic in typed)
    with EmbeddedBroker() as broker:
        exec(snippet.replace("127.0.0.1:9092", broker.bootstrap_servers), {})
    assert capsys.readouterr().out == f"{said}\n"
