"""One step of the flow: coordinates, direction and mover, and the methods built from them."""
