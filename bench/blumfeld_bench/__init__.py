"""``blumfeld bench``: compare brokers side by side in one run, by interleaved rounds, with intervals on every
figure.
"""
