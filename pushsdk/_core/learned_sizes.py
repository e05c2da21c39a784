"""The largest request that a service takes, as learned from its 413s."""


class LearnedSizes:
    """Bounds learned from 413: half of the smallest request that was too large. They only shrink."""

    def __init__(self) -> None:
        #: Largest request to merge, in users and in bytes of the body; None until a 413.
        self.users: int | None = None
        self.bytes: int | None = None

    def fits(self, users: int, frame: int, ids: int) -> bool:
        """Return True if a request with this size is within the bounds, or if fewer ids would not make it fit."""
        if self.users is None or users == 1 or ids < frame:
            return True
        max_bytes = self.bytes_for(frame)
        return users <= self.users and (max_bytes is None or frame + ids <= max_bytes)

    def learn(self, users: int, frame: int, ids: int) -> None:
        """Learn from a request with this size that was too large. Only its ids can be made fewer, not its frame."""
        # The larger half has one user more, and some bytes.
        half, size = (users + 1) // 2, frame + ids // 2 + ids // 16
        self.users, self.bytes = min(self.users or half, half), min(self.bytes or size, size)

    def bytes_for(self, frame: int) -> int | None:
        """Return the bound on a body with this frame; None if the frame alone is more than half the bound."""
        return None if self.bytes is None or frame * 2 > self.bytes else self.bytes
