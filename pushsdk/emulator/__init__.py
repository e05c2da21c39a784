"""The service on your machine, and its oracle: the public names, nothing else."""

from pushsdk._public import set_public_module
from pushsdk.emulator.faults import Fault, load_faults
from pushsdk.emulator.limits import LimitStatuses, ServiceLimits
from pushsdk.emulator.server import Emulator, Inbox
from pushsdk.emulator.store.queries import StoreError
from pushsdk.emulator.store.records import Campaign, Push

__all__ = [
    "Campaign",
    "Emulator",
    "Fault",
    "Inbox",
    "LimitStatuses",
    "Push",
    "ServiceLimits",
    "StoreError",
    "load_faults",
]

set_public_module(__name__, __name__)
