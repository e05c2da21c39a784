"""A claim store that fails by script, and deliveries of a job."""

import asyncio
from contextlib import asynccontextmanager

from pushsdk import MobilePush, PushError
from pushsdk._core.idempotency import ClaimRecord
from pushsdk.claims import Claim, MemoryClaims
from pushsdk.emulator import Fault
from pushsdk.testing import FakeService

HELLO = MobilePush(title={"en": "Hello"})
JOB = "job-42 of user-1"


class StoreDownError(Exception):
    """As a driver raises it; its text must go nowhere."""


class ShakyClaims(MemoryClaims):
    """Each operation meets the next of its faults, then none: a put that expects nothing, a read, a put with a token.

    A fault fails before anything is done ("down"); does it, and loses the answer ("lost"); never ends, nothing done
    ("hangs") or done ("hangs, done"); takes 1 s, or a fifth of a longer timeout ("slow"); does it twice ("twice").
    A fault that is a function is awaited once it is done.
    """

    def __init__(self, *, claim_ttl=7 * 86400.0, timeout=5.0, **faults):
        super().__init__(claim_ttl=claim_ttl)
        self.timeout = timeout
        self.faults = {"add": [], "get": [], "swap": [], **faults}
        #: The operations, in the order they came.
        self.ops = []

    async def put(self, puts, ttl):
        return await self._meet("swap" if puts[0].expected else "add", lambda: MemoryClaims.put(self, puts, ttl))

    async def get(self, keys):
        return await self._meet("get", lambda: MemoryClaims.get(self, keys))

    def stored(self):
        """Return the stored keys and claims."""
        return [(key, claim) for key, (claim, _) in self._claims.items()]

    def rewrite(self, record):
        """Replace the only record, as another process would."""
        ((key, (_, expires)),) = self._claims.items()
        self._claims[key] = Claim("x" * 32, record.encode()), expires

    def records(self):
        """Return the stored records."""
        return [ClaimRecord.decode(claim.record) for _, claim in self.stored()]

    def states(self):
        """The states of the users of every entry that it holds."""
        return [
            [status.state for start, stop, status in record.states().runs() for _ in range(start, stop)]
            for record in self.records()
        ]

    def next_fault(self, op):
        return self.faults[op].pop(0) if self.faults[op] else ""

    async def _meet(self, op, work):
        self.ops.append(op)
        fault = self.next_fault(op)
        # At least one turn of the loop, as any store takes.
        await asyncio.sleep(max(1.0, self.timeout / 5) if fault == "slow" else 0.0)
        if fault == "hangs":
            await asyncio.get_running_loop().create_future()
        if fault == "down":
            raise StoreDownError("user-1 Hello job-42 fake-key")
        answers = await work()
        if callable(fault):
            await fault()
        if fault == "twice":
            answers = await work()
        if fault == "hangs, done":
            await asyncio.get_running_loop().create_future()
        if fault == "lost":
            raise StoreDownError("user-1 Hello job-42 fake-key")
        return answers


@asynccontextmanager
async def delivering(service=None, *, claims=None, **options):
    """A service, a claim store, and a client of both."""
    service = service or FakeService()
    claims = claims or ShakyClaims()
    async with service.client(claims=claims, **options) as client:
        yield service, claims, client


async def deliver(client, users="user-1", message=HELLO, **options):
    """Deliver the job, and return the receipt or the error."""
    try:
        receipt = await client.send(users, message, **{"idempotency_key": JOB, **options})
    except PushError as error:
        return error
    return receipt


def long(*names):
    """Return ids that make up most of a request, so that a 413 splits the request."""
    return [name.ljust(200, "-") for name in names]


def singly(fates):
    """Return a service that accepts one user per request, with a script for each user."""

    def fate(request):
        if len(request.user_ids) > 1:
            return Fault.status(413)
        script = fates.get(request.user_ids[0].rstrip("-"), [])
        return script.pop(0) if script else None

    return FakeService(then=fate)
