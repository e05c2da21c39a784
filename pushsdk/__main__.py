"""``python -m pushsdk``."""

import sys

from pushsdk.cli import main

sys.exit(main())
