"""What the extensions bring on the targets of the paper."""
