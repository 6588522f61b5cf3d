"""For tests, ours and a stranger's: contract kits, an embedded broker, fakes of the world, and the simulation."""
