"""Update rules that step particles along their velocities."""
