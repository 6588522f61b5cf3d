"""The contract of the consensus role as tests: subclass :class:`ConsensusContract` and say how your nodes are made.

.. code-block:: python

    class TestMyConsensus(ConsensusContract):
        lacks = {"quorum": "the quorum is that of another system"}

        def node_sections(self, node_ids):
            return lambda node_id: {"consensus": {"plugin": "consensus_mine", "options": {...}}}
"""

from __future__ import annotations

from blumfeld_kit.consensus_contract.contract import ConsensusContract

__all__ = ["ConsensusContract"]
