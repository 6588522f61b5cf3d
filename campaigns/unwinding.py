"""``python -m campaigns.unwinding MODULE [options]``: run a module so that SIGTERM ends it by an exception.

Each process of a campaign is started so (:mod:`campaigns.commands`). Its ``finally`` blocks stop the brokers that it
started and remove their data.
"""

from __future__ import annotations

import runpy
import sys

from blumfeld.testing.endings import sigterm_unwinds

if __name__ == "__main__":
    del sys.argv[0]
    with sigterm_unwinds():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
