"""The node as a broker: its registration, its image, the pushes that it takes, what it asks the controller for."""
