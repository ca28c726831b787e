"""One step of the flow: coordinates, direction, mover, and the methods made of them."""
