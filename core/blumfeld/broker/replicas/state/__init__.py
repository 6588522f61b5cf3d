"""The state of a replica beside its batches, and how it is rebuilt: producers, epochs, aborted transactions."""
