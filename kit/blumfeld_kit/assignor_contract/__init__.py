"""The contract of a server-side assignor, as tests, and groups for tests of your own.

Subclass :class:`AssignorContract` and give it your assignor; pytest then runs its tests. ``make_spec`` builds the input
of an assignment, ``deal`` runs it, and ``holding`` gives the next input, in which members hold what was assigned.
"""

from blumfeld_kit.assignor_contract.contract import AssignorContract
from blumfeld_kit.assignor_contract.specs import deal, holding, make_spec, topic_id

__all__ = ["AssignorContract", "deal", "holding", "make_spec", "topic_id"]
