"""Comparisons with the exchange itself: its best bids and asks, and faults planted in its feed."""
