"""Telling ``on_event`` of a send whose thread had stopped waiting when it ended, or before it began."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pushsdk._core.errors import PartialError, PushError
from pushsdk._core.events import SendAbandoned
from pushsdk._core.outcome import Attempt, Outcome
from pushsdk._io.sender import emitter
from pushsdk._sync.call import Call
from pushsdk.client import AsyncPushClient

__all__ = ["tell_late"]

logger = logging.getLogger("pushsdk")


def tell_late(client: AsyncPushClient, user_ids: Any, call: Call) -> None:
    """In the loop: what the call would have returned or raised, nobody will see."""
    engine = client._engine
    if engine.loop is None:  # the thread left before anything was done
        return
    users = (user_ids,) if isinstance(user_ids, str) else tuple(dict.fromkeys(user_ids))
    emit = emitter(engine.settings.on_event)
    for outcome, ids, attempts in _endings(users, call):
        event = SendAbandoned(outcome=outcome, user_ids=ids, attempts=attempts)
        engine.counters.abandoned += 1
        engine.coalescer.ledger.abandoned.append(event)
        logger.info("a send of %d users ended %s after its caller had left", len(ids), outcome.value)
        if emit is not None:
            emit(event)


def _endings(users: tuple[str, ...], call: Call) -> list[tuple[Outcome, tuple[str, ...], tuple[Attempt, ...]]]:
    error = call.error
    if error is None:
        return [(Outcome.ACCEPTED, users, call.result.attempts)]
    if isinstance(error, PartialError):
        ended = ((outcome, error.users(outcome)) for outcome in Outcome)
        return [(outcome, tuple(ids), error.attempts) for outcome, ids in ended if ids]
    if isinstance(error, PushError):
        return [(error.outcome, users, error.attempts)]
    # It was cancelled before it began; anything else is a mistake in the call, found before anything was sent.
    return [(Outcome.NOT_SENT, users, ())] if isinstance(error, asyncio.CancelledError) else []
