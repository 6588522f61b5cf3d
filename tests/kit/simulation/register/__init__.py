"""A toy replicated register as a plug-in, with bugs that can be planted: the simulator must find each of them."""
