"""The number of random examples of a model test: some by default, many in its long form.

``PUSHSDK_MODEL_EXAMPLES`` sets the number in the long form, with new examples in each run.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

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


def mostly(usual, *others):
    """The usual value two times of three: examples in which everything is odd show little."""
    return st.sampled_from([usual] * (2 * len(others)) + list(others))
