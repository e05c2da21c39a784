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
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value

    def __dir__():
        return __all__


_MODULES = {
    "FakeResponse": "service",
    "FaultContext": "inbox",
    "FakeRequest": "service",
    "FakeService": "service",
    "HangError": "virtual",
    "PushInbox": "inbox",
    "SentPush": "inbox",
    "VirtualLoop": "virtual",
    "virtual_time": "virtual",
}

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
