"""Small files of closed dates become few, sorted ones. Stands above ``files`` and ``ledger``, and uses both."""
