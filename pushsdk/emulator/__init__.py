"""The service on your machine, and its oracle: the public names, nothing else."""

from pushsdk.emulator.faults import Fault, load_faults
from pushsdk.emulator.server import Emulator, Inbox
from pushsdk.emulator.store import Campaign, MemoryStore, Push, Store

__all__ = ["Campaign", "Emulator", "Fault", "Inbox", "MemoryStore", "Push", "Store", "load_faults"]
