"""The life of brokers and partitions under the controller, as scripts with the records that come of them."""

from __future__ import annotations

from tests.metadata.controller_trace import ControllerTrace
from tests.trace_files import check_trace, each_trace


@each_trace("controller")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, ControllerTrace(elr="_without_elr" not in name).run)
