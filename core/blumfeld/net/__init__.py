"""What every transport needs, whatever moves its bytes: frames cut, answers in order, limits kept. Pure."""
