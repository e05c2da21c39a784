"""The push service on your machine, and the oracle of what it accepted.

``service`` handles a request: `guard` checks the head, `shapes` the body, `limits` refuses, `faults` fails, `store`
keeps the record. `PushBody.digest` says which pushes are equal, `Store.received` finds users with such a duplicate.
"""

from pushsdk._public import set_public_module
from pushsdk.emulator.faults import Fault, load_faults
from pushsdk.emulator.limits import ServiceLimits
from pushsdk.emulator.server import Emulator, Inbox
from pushsdk.emulator.store.database import StoreError
from pushsdk.emulator.store.records import Campaign, Push

__all__ = [
    "Campaign",
    "Emulator",
    "Fault",
    "Inbox",
    "Push",
    "ServiceLimits",
    "StoreError",
    "load_faults",
]

set_public_module(__name__, __name__)
