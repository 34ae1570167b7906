"""`python -m elmokit …` is the command line `elmokit …`."""

import sys

from elmokit.cli.main import main

sys.exit(main())
