"""``python -m campaigns librdkafka-suite``: librdkafka's own tests against three nodes; exit 1 if one failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from campaigns.suites.librdkafka.program import PROTOCOLS, SCENARIOS, RdkafkaSuite
from campaigns.suites.runs import NoSuiteError, check, run_suite, suite_parser
from campaigns.terminal import refused

CAMPAIGN = "librdkafka-suite"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if each test passed, be it alone, 1 if not, 2 if the suite can't be had or the input is wrong."""
    parser = suite_parser(
        CAMPAIGN,
        "The tests of librdkafka that need brokers, against three nodes. npm fetches them, a C++ compiler builds them.",
    )
    parser.add_argument(
        "--scenario", choices=SCENARIOS, default=SCENARIOS[0], help="configuration of the brokers"
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, default=PROTOCOLS[0], help="of the consumer groups")
    parser.add_argument("--quick", action="store_true", help="only the parts that the suite calls quick")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="tests that run at the same time")
    given = parser.parse_args(arguments)
    try:
        check(given)
        suite = RdkafkaSuite(given)
    except (NoSuiteError, ValueError) as error:
        return refused(CAMPAIGN, error)
    return run_suite(suite, given)


if __name__ == "__main__":
    sys.exit(main())
