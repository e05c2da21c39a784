"""Test support: fakes of sending and of time, and the classes behind the fixtures of the pytest plugin.

pytest loads this package wherever pushsdk is installed, so the public names are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushsdk.testing.inbox import FaultContext, PushInbox, SentPush
    from pushsdk.testing.service import FakeRequest, FakeResponse, FakeService
    from pushsdk.testing.virtual import HangError, VirtualLoop, virtual_time

else:  # a type checker would accept any name from a visible __getattr__

    def __getattr__(name):
        for module in map(importlib.import_module, _MODULES if name in __all__ else ()):
            if hasattr(module, name):
                globals()[name] = value = getattr(module, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return __all__


# Cheap ones first.
_MODULES = ("pushsdk.testing.virtual", "pushsdk.testing.service", "pushsdk.testing.inbox")

__all__ = [
    "FakeRequest",
    "FakeResponse",
    "FakeService",
    "FaultContext",
    "HangError",
    "PushInbox",
    "SentPush",
    "VirtualLoop",
    "virtual_time",
]
