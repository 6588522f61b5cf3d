"""Events are kept until logging is set up, and then come out in their order."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest

from blumfeld.kernel.watching.event_log import EVENTS_KEPT_MAX, EventLogs, Prepare, Render, structlog_renderer
from tests.kernel.fakes import Rendered


class Later:
    """Offloads by hand."""

    def __init__(self) -> None:
        self.asked: list[tuple[Prepare, Callable[[Render], None]]] = []

    def __call__(self, prepare: Prepare, use: Callable[[Render], None]) -> None:
        self.asked.append((prepare, use))

    def run(self) -> None:
        prepare, use = self.asked.pop()
        use(prepare())


def test_events_before_the_port_is_open_are_kept_and_come_in_order() -> None:
    rendered, later = Rendered(), Later()
    logs = EventLogs(rendered.prepare)
    logs.named("a").info("first", value=1)
    logs.named("b").error("second")
    assert rendered.events == []
    logs.port_is_open(later)
    logs.named("a").warning("third")
    assert len(later.asked) == 1
    later.run()
    logs.named("a").info("fourth")
    assert [event for _, event, _ in rendered.events] == ["first", "second", "third", "fourth"]
    assert later.asked == []


def test_a_quiet_node_never_sets_up_logging() -> None:
    later = Later()
    logs = EventLogs(Rendered().prepare)
    logs.named("a").debug("below the level")
    logs.port_is_open(later)
    logs.flush()
    assert later.asked == []


def test_the_first_event_after_the_port_is_open_sets_it_up() -> None:
    rendered, later = Rendered(), Later()
    logs = EventLogs(rendered.prepare, level="warning")
    logs.port_is_open(later)
    logs.named("a").info("below the level")
    assert later.asked == []
    logs.named("a").warning("one")
    later.run()
    assert [event for _, event, _ in rendered.events] == ["one"]


def test_what_is_kept_is_bounded_and_the_loss_is_told() -> None:
    rendered = Rendered()
    logs = EventLogs(rendered.prepare)
    for nth in range(EVENTS_KEPT_MAX + 3):
        logs.named("a").info(str(nth))
    logs.flush()
    level, event, values = rendered.events[0]
    assert (level, values["dropped"]) == ("warning", 3)
    assert "dropped" in event
    assert [event for _, event, _ in rendered.events[1:]] == [
        str(nth) for nth in range(3, EVENTS_KEPT_MAX + 3)
    ]


def test_json_is_an_object_a_line_with_the_traceback_in_it() -> None:
    out = io.StringIO()
    render = structlog_renderer("json", out)()
    try:
        raise ValueError("oh")
    except ValueError as error:
        render(1_700_000_000_123, "error", "kernel", "failed", {"part": "x", "exc_info": error})
    line = json.loads(out.getvalue())
    assert line["timestamp"] == "2023-11-14T22:13:20.123Z"
    assert (line["level"], line["logger"], line["event"], line["part"]) == ("error", "kernel", "failed", "x")
    assert line["exception"][0]["exc_type"] == "ValueError"


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_console_is_a_line_without_colours_where_there_is_no_terminal(level: str) -> None:
    out = io.StringIO()
    structlog_renderer("console", out)()(0, level, "kernel", "topic created", {"topic": "t"})
    text = out.getvalue()
    assert "topic created" in text
    assert "topic=t" in text
    assert level in text
    assert "\x1b[" not in text


def test_a_reader_that_went_away_is_no_reason_to_stop() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    structlog_renderer("console", Broken())()(0, "info", "kernel", "hello", {})
