"""Make load, in processes of their own: the contract, the drivers, and what their processes share."""
