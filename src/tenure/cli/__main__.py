"""`python -m tenure.cli`, where the `tenure` command is not on the path."""

import sys

from tenure.cli import main

sys.exit(main())
