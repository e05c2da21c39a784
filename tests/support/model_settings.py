"""How many random worlds a model is tried on: some by default, many in its long form.

``PUSHSDK_MODEL_EXAMPLES`` asks for so many in the long form, and for others at each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

__all__ = ["LONG", "SHORT"]

ASKED = int(os.environ.get("PUSHSDK_MODEL_EXAMPLES", "0"))
SHORT = settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(SHORT, max_examples=ASKED or 300, derandomize=not ASKED)
