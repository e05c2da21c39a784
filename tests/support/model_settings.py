"""Models: what a service may do, and the number of random examples, some by default, many in the long form.

``PUSHSDK_MODEL_EXAMPLES`` sets the number in the long form, with new examples in each run.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from pushsdk._core.outcome import Failure
from support.fake_service import answer, fails, hang, partial, reset_after, reset_before, stale, unreachable

FAULTS = {
    "accepted": answer(),
    "accepted slowly": answer(after=0.8),
    "accepted after connecting": answer(connecting=0.3),
    "500": answer(500),
    "500, accepted": answer(500, accepted=True),
    "503": answer(503),
    "503 with Retry-After": answer(503, {"Retry-After": "1"}),
    "429": answer(429),
    "429 with Retry-After": answer(429, {"Retry-After": "2"}),
    "400": answer(400),
    "413": answer(413),
    "302": answer(302, {"Location": "https://elsewhere.example/"}),
    "reset_before": reset_before(),
    "reset_after": reset_after(),
    "hang": hang(),
    "hang, accepted": hang(accepted=True),
    "never connects": unreachable(),
    "refused": fails(Failure.REFUSED),
    "no name": fails(Failure.DNS, after=0.1),
    "partial": partial(),
    "stale": stale(),
}

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
