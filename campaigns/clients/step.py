"""One check of one client in this process: ``python -m campaigns.clients.step CLIENT COLUMN BOOTSTRAP TAG CONSENSUS``.

Prints a line of JSON, ``{"verdict": "ok" | "failed" | "not offered", "note": …}``, last of all.
"""

from __future__ import annotations

import json
import sys
import traceback

from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.columns import columns_of
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import CheckFailed, NotOffered


def run_step(name: str, column: str, bootstrap: str, tag: str, consensus: str) -> tuple[str, str]:
    """The verdict and a note to it; raises nothing."""
    try:
        columns_of(name)[column](client_class(name)(bootstrap), Scene(bootstrap, tag, consensus))
    except NotOffered as reason:
        return "not offered", str(reason)
    except CheckFailed as failure:
        return "failed", str(failure)
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}"
    return "ok", ""


def main() -> int:
    """Run the step that the command line names."""
    verdict, note = run_step(*sys.argv[1:6])
    sys.stdout.flush()
    print(json.dumps({"verdict": verdict, "note": note}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
