"""How fast the library is, beside the limits that its developers set."""
