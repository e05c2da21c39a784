"""An error's text for a verdict, made when it is read: what happened, and the first row of ``FIXES`` that applies.

Texts are made from fixed phrases, statuses and class names: a response may quote user ids or texts, so a text has what
the service answered only if ``Target.shows_answers`` is set. A row names an option by a placeholder; whoever shows the
text fills in its names.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.client import responses
from urllib.parse import urlsplit

from pushsdk._core.address import is_loopback
from pushsdk._core.errors import Wording
from pushsdk._core.operations import PUSH, Target
from pushsdk._core.outcome import OUT_OF_TIME, Attempt, Failure, Outcome, Verdict
from pushsdk._core.words import count

# Nothing that steers a terminal, and no @: a service may put a user id into such a header.
_is_request_id = partial(re.fullmatch, r"(?a)[\w.:;=/+-]{1,100}")
# A domain name, which has at most 253 characters, or an IPv6 address.
_is_host = partial(re.fullmatch, r"(?a)[\w.:-]{1,253}")
# As nginx, Apache, and Go's net/http answer.
_is_http_to_tls = partial(re.search, "plain HTTP|HTTP request to an HTTPS server")


class Facts(Wording, frozen=True):
    """The facts about a call that was not accepted: its error's data, without user ids."""

    verdict: Verdict
    target: Target | None = None
    users: int = 0
    sent: int = 0
    """The most attempts with outcome UNKNOWN that one request has."""
    bound: float | None = None
    """The seconds of the setting that may have ended the call: the timeout, or the longest Retry-After."""
    look: str = ""
    """Advice on the claim, for a call with an idempotency key: another call with the key does not push again."""

    @property
    def decisive(self) -> Attempt:
        """The attempt that decided. For a call without one, its failure as an attempt."""
        verdict = self.verdict
        return verdict.decisive or Attempt(
            outcome=verdict.outcome, reason=self._failure(), retry_after=verdict.retry_after
        )

    def render(self, names: Mapping[str, str]) -> str:
        """Return the outcome, the cause, the risk of another call, and the fix."""
        target, risk = self.target, ""
        if self.verdict.outcome is Outcome.UNKNOWN:
            times, again = (f" up to {self.sent} times", "once more") if self.sent > 1 else ("", "twice")
            operation = target.operation if target else PUSH
            in_doubt = _KEYED if self.look else operation.in_doubt
            risk = "; " + in_doubt.format(times=times, again=again, look=self.look)
        fix = self._fix(target, names) if target else ""
        end = self._end() or self._by_policy()
        return f"{_HEADS[self.verdict.outcome]}: {self._cause()}{end}{risk}{fix} [{self.code}]"

    @property
    def code(self) -> str:
        """The outcome with the HTTP status or the failure that decided."""
        decisive = self.decisive
        cause: object = decisive.status
        if cause is None:
            failure = next(filter(decisive.reason.startswith, Failure), Failure.OTHER)
            cause = failure.name.lower().replace("_", "-")
        return f"{_HEADS[self.verdict.outcome].replace(' ', '-')}-{cause}"

    def _cause(self) -> str:
        """Return the reason, the request, and the answer if it is to be shown."""
        decisive, target, request = self.decisive, self.target, self._request()
        # The standard phrase for the status: the service's phrase may quote a user.
        status, phrase = f"HTTP {decisive.status}", responses.get(decisive.status or 0, "")
        reason = decisive.reason.replace(status, f"{status} {phrase}".strip(), 1)
        shown = f" ({request})" if request else ""
        answer = f": {decisive.answer}" if target and target.shows_answers and decisive.answer else ""
        return f"{reason}{_redirect(decisive)}{shown}{answer}"

    def _request(self) -> str:
        """Return the request with its users, attempts and id, as far as there are any."""
        target, attempts, request_id = self.target, len(self.verdict.attempts), _request_id_of(self.decisive)
        details = (
            (target and attempts, str(target)),
            (target and self.users, count(self.users)),
            (attempts > 1, f"{attempts} attempts"),
            (request_id, request_id),
        )
        return ", ".join([text for is_known, text in details if is_known])

    def _end(self) -> str:
        """Return why the request was not retried, unless the last attempt says so; ``""`` if nothing ended the call."""
        attempts, failure, bound = self.verdict.attempts, self.verdict.failure, self._bound()
        if failure not in _OUR_REASONS or not attempts:
            return ""
        last = attempts[-1].reason
        if last.startswith(str(failure)) or (bound and bound in last):
            return ""
        end = "not retried again: " if len(attempts) > 1 else "not retried: "
        return f"; {end}{self._failure()}"

    def _by_policy(self) -> str:
        """Return that the policy ended the retries, if nothing else did."""
        attempts = self.verdict.attempts
        is_last = self.verdict.failure is None and attempts[1:] and attempts[-1].retryable
        return "; not retried again: the retry policy allows no more attempts" if is_last else ""

    def _failure(self) -> str:
        return ": ".join(filter(None, (self.verdict.failure or _UNTRIED, self._bound())))

    def _bound(self) -> str:
        """Return the pause that the service asked for, and the setting that is shorter; ``""`` if none ended it."""
        if self.bound is None:
            return ""
        wait = _seconds(self.verdict.retry_after)
        pause = f"for {wait}, and less is left of the " if self.verdict.retry_after else ""
        return _BOUNDS.get(self.verdict.failure, "").format(bound=f"{self.bound:g}", wait=wait, pause=pause)

    def _fix(self, target: Target, names: Mapping[str, str]) -> str:
        """Return sentences on the fix, and on where the answer is; ``""`` if there is nothing to say."""
        signs, decisive = self._signs(target), self.decisive
        fix = next((fix for condition, fix in FIXES if condition <= signs), "")
        when = f"after {_seconds(decisive.retry_after)}" if decisive.retry_after else "later"
        values = {"when": when, "request_id": _request_id_of(decisive)}
        return fix.format_map({**names, **values}) + (_UNSEEN if "unseen answer" in signs else "")

    def _signs(self, target: Target) -> set[object]:
        """Return those ``FIXES`` conditions that hold."""
        verdict, decisive = self.verdict, self.decisive
        is_local = is_loopback(target.base_url)
        signs: dict[object, object] = {
            verdict.outcome: True,
            target.operation.name: True,
            "local": is_local,
            "http to TLS": target.base_url.startswith("http:") and _is_for_tls(verdict, decisive, is_local=is_local),
            "job": self.look,
            "unseen answer": decisive.answer and not target.shows_answers,
            **_signs_in(decisive),
        }
        return {sign for sign, holds in signs.items() if holds}


def _is_for_tls(verdict: Verdict, decisive: Attempt, *, is_local: bool) -> bool:
    """Return True if plain http seems to have met TLS: no request was answered, or the answer says so."""
    if decisive.status is not None:
        return decisive.status == 400 and _is_http_to_tls(decisive.answer) is not None
    return verdict.is_first and verdict.failure in (Failure.RESET, Failure.DISCONNECTED) and not is_local


def _signs_in(decisive: Attempt) -> dict[object, object]:
    """Return the conditions that the attempt that decided tells, each with whether it holds."""
    return {
        decisive.status: decisive.outcome is Outcome.REJECTED,
        "throttled": decisive.retryable and decisive.retry_after,
        "request id": _request_id_of(decisive),
        "no answer": not decisive.answer,
        **{failure: decisive.reason.startswith(failure) for failure in Failure},
        **{
            word: word in decisive.reason
            for word in ("host name", "TLS handshake", "mismatch", "expired", "open files")
        },
    }


_KEYED = "it may have been enqueued{times}; another call with this idempotency_key sends nothing; {look}"
_UNTRIED = "the call ended before its first attempt"
_HEADS = {Outcome.UNKNOWN: "outcome unknown", Outcome.REJECTED: "rejected", Outcome.NOT_SENT: "not sent"}
_TOTAL = "total timeout {bound} s"
_BOUNDS: Mapping[Failure | None, str] = {
    **dict.fromkeys({*OUT_OF_TIME, Failure.TOO_LATE}, _TOTAL),
    Failure.THROTTLED: "{pause}" + _TOTAL,
    Failure.TOO_LONG: "{wait}, RetryPolicy(max_retry_after={bound})",
}
# The text names these if they ended a request whose last attempt was retryable.
_OUR_REASONS = frozenset({*_BOUNDS, Failure.BUDGET, Failure.CLOSED})
_UNSEEN = ". The answer is in .body; with PUSHSDK_SHOW_ANSWERS=1 it is shown here"
_LIMITS = "see: pushsdk docs timeouts-and-limits"
_THROTTLING = "see: pushsdk docs throttling"
_OUTCOMES = "see: pushsdk docs outcomes"
_BURST = "For a burst, raise {timeout} (N calls at R a second take N/R s), or use send_each; " + _THROTTLING
_RATE = ". If this recurs, set {rate} below the service's limit; " + _THROTTLING
_WRONG_URL = ". base_url is probably wrong: check its host and its path, which must end before /v1"
_LINT = ". Check the message: {lint}"
_DNS = ". Check the host in base_url, and the DNS of this machine"
_TLS = ". Does the service speak TLS on this port?"
_KEY = ". Check the api_key, and that it belongs to this base_url"

FIXES: tuple[tuple[set[object], str], ...] = (
    ({"http to TLS"}, ". base_url says http://: does the service speak https? See: pushsdk docs troubleshooting"),
    ({Failure.DNS}, _DNS),
    ({"open files"}, ". Close files, or raise ulimit -n"),
    ({Failure.REFUSED, "local"}, ". Is the service up? For a local one: {emulator}"),
    ({Failure.REFUSED}, ". Is the service up?"),
    ({Failure.CONNECT_TIMEOUT, "TLS handshake"}, _TLS),
    ({Failure.TLS, "TLS handshake"}, _TLS),
    ({Failure.CONNECT_TIMEOUT, "host name"}, _DNS),
    ({Failure.CONNECT_TIMEOUT}, ". Is the host reachable from here, past firewalls and proxies?"),
    ({Failure.UNREADABLE}, ". Is base_url right? A port for TLS needs https; see: pushsdk docs troubleshooting"),
    ({Failure.CERTIFICATE, "mismatch"}, ". base_url must have a name that the certificate is for"),
    ({Failure.CERTIFICATE, "expired"}, ". Renew the service's certificate, or set the clock of this machine"),
    ({Failure.CERTIFICATE}, ". For a private CA {cafile}"),
    ({Failure.PROXY}, ". Check {proxy}, and that the proxy is up"),
    ({Failure.KEY_FAILED}, ". Call again once it works"),
    (
        {Failure.KEY_BUG},
        ". Fix the callable: __cause__ is the exception. If a retry may help, raise an OSError or a class of yours",
    ),
    ({Failure.SESSION}, ". Keep the session open for as long as the client"),
    ({Failure.THROTTLED}, ". Call again {when}. " + _BURST),
    ({Failure.RATE}, ". " + _BURST),
    ({Failure.NO_SLOT}, ". Raise {in_flight}, or {timeout} for a burst; " + _LIMITS),
    ({Failure.NO_TIME}, ". Send fewer at a time; for a burst, raise {timeout}; " + _THROTTLING),
    ({Failure.DEADLINE}, ". Raise {timeout} if the service needs longer; " + _LIMITS),
    ({Failure.ATTEMPT_TIMEOUT}, ". Raise {attempt_timeout} if the service needs longer; " + _LIMITS),
    ({Failure.QUEUE_FULL}, ". Call again later, or raise Limits(queued_users=..., queued_bytes=...)"),
    ({Failure.BUDGET}, ". The service fails too often; see: pushsdk docs retries"),
    ({Failure.NOT_LISTED}, ": see {only_users}"),
    ({429}, ". Call again {when}" + _RATE),
    ({Outcome.REJECTED, "throttled"}, ". Call again {when}"),
    ({401}, _KEY),
    ({403}, _KEY),
    ({404}, _WRONG_URL),
    ({405}, _WRONG_URL),
    ({413}, ". Shorten the message, or send to fewer users per call if the service limits their number"),
    ({400, "no answer"}, _LINT),
    ({422, "no answer"}, _LINT),
    ({Outcome.UNKNOWN, "job"}, "; see: pushsdk docs idempotency#claims-of-dead-processes"),
    ({Outcome.UNKNOWN, "request id"}, ". Don't retry: ask the service about {request_id}; " + _OUTCOMES),
    ({Outcome.UNKNOWN, PUSH.name}, ". Don't retry unless a second push is acceptable; " + _OUTCOMES),
    ({Outcome.UNKNOWN}, "; " + _OUTCOMES),
)
"""Conditions, all of which must hold, and the sentence that says how to fix it. The first row counts."""


class Parts(Wording, frozen=True):
    """The facts about a call whose users have different outcomes."""

    counts: dict[Outcome, int]
    example: Facts | None = None
    """The most frequent cause for the worst outcome."""
    users: int = 0
    """The users with this cause."""
    is_repeatable: bool = True
    """True if the same call can't push to anyone twice."""

    def render(self, names: Mapping[str, str]) -> str:
        """Return the number of users with each outcome, and the most frequent cause."""
        summary = ", ".join(
            [f"{self.counts[outcome]} {outcome.value}" for outcome in Outcome if outcome in self.counts]
        )
        most = f". Most often ({count(self.users)}): {self.example.render(names)}" if self.example else ""
        whole = "" if self.is_repeatable else ". Don't repeat the whole call: it may push to some users again"
        return f"users have different outcomes: {summary}{names['outcomes']}{whole}{most}"


def _seconds(wait: float | None) -> str:
    return f"{math.ceil(wait or 0)} s"


def _request_id_of(attempt: Attempt) -> str:
    """Return the id that the service gave to the request, as texts show it; ``""`` if there is no plain one."""
    request_id = attempt.request_id or ""
    return f"request id {request_id}" if _is_request_id(request_id) else ""


def _redirect(attempt: Attempt) -> str:
    """Return a redirect's host, a hint at the right base_url. The rest of the URL is not shown."""
    if attempt.status is None or not 300 <= attempt.status < 400:
        return ""
    host: str | None = None
    with suppress(ValueError):
        host = urlsplit(attempt.headers.get("Location", "")).hostname
    named = f" to {host}" if host and _is_host(host) else ""
    return f", a redirect{named}: not followed, set base_url to where the service is"
