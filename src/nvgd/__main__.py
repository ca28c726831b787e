"""`python -m nvgd`: the command line."""

import sys

from nvgd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
