"""The command line of nvgd."""

from nvgd.cli.main import main, program

__all__ = ["main", "program"]
