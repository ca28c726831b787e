"""How particles step along their velocities."""
