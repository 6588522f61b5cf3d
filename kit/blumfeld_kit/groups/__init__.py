"""For authors of group types: the contract as tests, and the models that it runs on."""
