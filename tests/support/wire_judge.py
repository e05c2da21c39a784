"""Checks of the client's reports against the counts of the server.

These checks are the README's promise, in code.
"""

from collections import Counter
from dataclasses import dataclass

from pushsdk import CampaignRequest, MobilePush, Outcome, PushError, Receipt
from support.kill_judge import verdict

HELLO = MobilePush(body={"en": "hi"})
ENORMOUS = MobilePush(body={"en": "x" * 6_000_000})


@dataclass(frozen=True)
class Ending:
    """The result of one call."""

    outcome: Outcome
    error: PushError | None = None
    receipt: Receipt | None = None

    @property
    def tries(self):
        """The attempts that the client tells of."""
        end = self.error or self.receipt
        return len(end.attempts) if end is not None else 1

    @property
    def left(self):
        """The calls that were sent or may have been sent."""
        end = self.error or self.receipt
        return sum(attempt.outcome is not Outcome.NOT_SENT for attempt in end.attempts) if end is not None else 1

    @property
    def status(self):
        """The status that the error names."""
        return getattr(self.error, "status", None)


async def ask(client, user, *, campaign=False, big=False, timeout=None):
    """Push to ``user`` (or create the campaign of that name), and record the result.

    Its custom fields are unique, so that it can't share a request. Any exception but a PushError is raised, as no
    client may raise it.
    """
    try:
        if campaign:
            await client.create_campaign(CampaignRequest(name=user), timeout=timeout)
            return Ending(Outcome.ACCEPTED)
        message = ENORMOUS if big else HELLO
        receipt = await client.send(user, message, timeout=timeout, custom_fields={"of": user})
    except PushError as error:
        ending = Ending(error.outcome, error)
    else:
        return Ending(receipt.outcome, None, receipt)
    assert ending.error.user_ids == (() if campaign else (user,))
    return ending


class Ledger:
    """The outcome of each user, as reported by the client."""

    def __init__(self):
        self.endings = {}

    async def ask(self, client, user, **way):
        """``ask``, and enter the ending."""
        ending = await ask(client, user, **way)
        assert user not in self.endings, "a user ends once"
        self.endings[user] = ending
        return ending

    @property
    def count(self):
        """The number of calls of each outcome."""
        return Counter(ending.outcome for ending in self.endings.values())

    def judge(self, server, users):
        """Check that nothing is lost or doubled and that every report is true."""
        names = list(users)
        assert list(self.endings.keys() - set(names)) == []
        assert [user for user in names if user not in self.endings] == [], "a call without an ending"
        verdict((self.endings[user].outcome.name, server.processed[user], 0) for user in names)
        assert set(server.processed) <= set(names), "pushed to somebody nobody asked for"
