"""Events, counts, and the HTTP port that shows them."""
