"""Play cases to both, and print the differences.

For each seed both get the same set of ACLs. Then every user sends every request from every host to both, and their
verdicts are compared.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from blumfeld.testing.process import LOOPBACK
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest
from campaigns.verdicts.acl_sets import HOSTS, PRINCIPALS, acl_set
from campaigns.verdicts.requests import Case, cases
from campaigns.verdicts.targets import ADMIN, Server, blumfeld, kafka

ANY = 1
EVERYTHING: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
SETTLE_SECONDS_MAX = 20.0


def set_acls(server: Server, acls: list[AclCreation]) -> None:
    """Replace all ACLs, and wait until the server shows these."""
    everything = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)])
    server.ask("broker", ADMIN, LOOPBACK, everything, 3)
    server.ask("broker", ADMIN, LOOPBACK, CreateAclsRequest(creations=acls), 3)
    expected = len({repr(acl) for acl in acls})
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    asked = DescribeAclsRequest(**EVERYTHING)
    while True:
        answer = server.ask("broker", ADMIN, LOOPBACK, asked, 3)
        shown = sum(len(resource.acls) for resource in answer.resources)
        if shown == expected:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.name} shows {shown} ACLs instead of {expected}")
        time.sleep(0.02)


def main() -> int:
    """Run the campaign. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m campaigns verdicts", description=__doc__)
    parser.add_argument("--peer", required=True, help="the script that runs Apache Kafka")
    parser.add_argument("--sets", type=int, default=20, help="sets of ACLs; each makes over a thousand cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only requests whose name contains this")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        theirs = stack.enter_context(kafka(options.peer, folder / "kafka"))
        return compare(theirs, stack.enter_context(blumfeld(folder / "blumfeld")), options)


def explained(name: str, theirs: Any, ours: Any) -> bool:
    """Whether docs/interop.md says why they differ."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return False
    refused = theirs.get("error_code") and theirs.get("error_code") == ours.get("error_code")
    # A whole request that is refused: one of the two repeats what was asked.
    repeated = ("ListPartitionReassignments", "Fetch of the quorum", "DescribeUserScramCredentials")
    return bool(refused) and name.startswith(repeated)


class Comparison:
    """The cases that were played, and those whose verdicts differ."""

    def __init__(self) -> None:
        self.played = 0
        self.different: Counter[str] = Counter()
        self.explained: Counter[str] = Counter()

    def take(self, case: Case, situation: str, theirs: Any, ours: Any) -> None:
        """Count a case; print the first difference of each kind."""
        self.played += 1
        if theirs == ours:
            return
        name = f"{case.listener}: {case.name}"
        if explained(case.name, theirs, ours):
            self.explained[name] += 1
            return
        self.different[name] += 1
        if self.different[name] == 1:
            print(f"{situation}: {name}\n    Kafka: {theirs}\n    Blumfeld: {ours}", flush=True)


def compare(theirs: Server, ours: Server, options: argparse.Namespace) -> int:
    """Play all cases to both. Returns the exit status: 1 if verdicts differ."""
    suites = [list(cases(*server.prepare())) for server in (theirs, ours)]
    comparison = Comparison()
    for seed in range(options.seed, options.seed + options.sets):
        acls = acl_set(seed)
        for server in (theirs, ours):
            set_acls(server, acls)
        for user, host in itertools.product(PRINCIPALS, HOSTS):
            for their_case, our_case in zip(*suites, strict=True):
                if options.only in our_case.name:
                    verdicts = theirs.verdict(their_case, user, host), ours.verdict(our_case, user, host)
                    comparison.take(our_case, f"seed {seed}, {user} at {host}", *verdicts)
    differ = comparison.different
    print(f"{comparison.played} cases, {differ.total()} differ: {dict(differ)}")
    print(f"explained in docs/interop.md: {dict(comparison.explained)}")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
