"""The command line of nvgd."""

from nvgd.cli.main import main

__all__ = ["main"]
