"""``python -m campaigns object-store``: the contract of a store, and segments, on a real S3 server."""

from __future__ import annotations

import argparse
import subprocess
import sys

from campaigns import ROOT
from campaigns.object_store.seaweedfs import INSTALL, weed

TESTS = ROOT / "tests" / "plugins" / "storage_tiered" / "stores" / "test_seaweedfs.py"


def main() -> int:
    """Run the tests. Returns the exit status of pytest, or 2 if the server isn't installed."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="Further options are pytest's.")
    _, further = parser.parse_known_args()
    if weed() is None:
        print(f"object-store: no S3 server here; allowed: SeaweedFS ({INSTALL})", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-n", "0", str(TESTS), *further]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
