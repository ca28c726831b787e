"""`python -m nvgd.cli`, the same as `nvgd`."""

import sys

from nvgd.cli.main import main

sys.exit(main())
