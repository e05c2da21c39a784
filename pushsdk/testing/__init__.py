"""Test support: fakes for sending and for time, and the classes behind the pytest plugin's fixtures.

pytest loads this package wherever pushsdk is installed, so the public names are imported on first use.
"""

from typing import TYPE_CHECKING

import pushsdk._public

if TYPE_CHECKING:
    from pushsdk.testing.inbox import FaultContext, PushInbox, SentPush
    from pushsdk.testing.service import FakeRequest, FakeService
    from pushsdk.testing.virtual import HangError, VirtualLoop, virtual_time

else:  # a type checker would accept any name from a visible __getattr__
    # Cheap ones first.
    _MODULES = ("pushsdk.testing.virtual", "pushsdk.testing.service", "pushsdk.testing.inbox")
    __getattr__, __dir__ = pushsdk._public.lazy_names(__name__, _MODULES)

__all__ = [
    "FakeRequest",
    "FakeService",
    "FaultContext",
    "HangError",
    "PushInbox",
    "SentPush",
    "VirtualLoop",
    "virtual_time",
]
