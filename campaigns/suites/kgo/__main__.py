"""``python -m campaigns kgo-suite``: kgo's own tests against three nodes; exit 1 if one failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from blumfeld_kit.cluster import REPLICAS
from campaigns.secured.cluster import SASL
from campaigns.suites.kgo.program import LIMIT_S, RECORDS, KgoSuite
from campaigns.suites.runs import NoSuiteError, check, run_suite, suite_parser
from campaigns.terminal import refused

CAMPAIGN = "kgo-suite"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if each test passed, be it alone, 1 if not, 2 if the suite can't be had or the input is wrong."""
    parser = suite_parser(
        CAMPAIGN, "The test suite of franz-go's package kgo against three nodes. The Go client fetches it."
    )
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="of each topic")
    parser.add_argument(
        "--records", type=int, default=RECORDS, help="that the largest tests copy from topic to topic"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="time for one run of all tests")
    given = parser.parse_args(arguments)
    try:
        check(given)
        if given.secured.endswith(SASL):
            raise ValueError(
                f"--secured {given.secured}: only the tests of SCRAM log in by SASL; take a way by TLS"
            )
        suite = KgoSuite(given)
    except (NoSuiteError, ValueError) as error:
        return refused(CAMPAIGN, error)
    return run_suite(suite, given)


if __name__ == "__main__":
    sys.exit(main())
