"""Real clients copy a market feed in transactions while brokers and clients are killed.

What ``read_committed`` shows at the end must equal the input exactly, whatever died when. docs/transaction-kills.md
says how to run it and how to read it.
"""
