"""``python -m pushsdk.cli``."""

import sys

from pushsdk.cli import main

sys.exit(main())
