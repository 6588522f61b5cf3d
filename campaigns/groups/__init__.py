"""Group members of both protocols on virtual time, and the oracle that watches them."""
