"""`python -m nvgd`: the command line."""

from nvgd.cli.main import program

if __name__ == "__main__":
    program()
