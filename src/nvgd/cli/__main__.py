"""`python -m nvgd.cli`, the same as `nvgd`."""

from nvgd.cli.main import program

program()
