"""The workload ``transactions``: a cluster whose clients append in transactions, and the checker of their histories."""
