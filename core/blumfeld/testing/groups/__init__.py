"""For group types: model members of both protocols, a contract kit, and a simulation on virtual time."""
