"""The emulator's store: requests, counts, and the search over them."""
