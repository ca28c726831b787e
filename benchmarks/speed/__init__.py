"""The speed of the library, compared with its limits."""
