"""The store of the emulator: requests, counts, and the search over them."""
