"""Several tenants on one PushClient: threads, thread-locals and forks."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from support.service_thread import HANGS

from pushsdk import Batching, MobilePush, PushClient, RetryPolicy
from pushsdk.emulator import Fault

HELLO = MobilePush(title={"en": "Hi"}, ios_enabled=True)
TENANTS = ("acme", "globex", "initech", "umbrella")
LOCAL = threading.local()


def of_thread():
    return f"key-{LOCAL.tenant}"


def pushes(service):
    return {tenant: dict(service.inbox(f"key-{tenant}").users()) for tenant in TENANTS}


def as_tenants(work):
    """Return the results of the work in threads of several tenants that begin together."""
    together = threading.Barrier(16)

    def begin(number):
        LOCAL.tenant = tenant = TENANTS[number % len(TENANTS)]
        together.wait(HANGS)
        return work(tenant, number)

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(begin, range(16)))


def test_a_sync_callable_runs_in_the_calling_thread_at_every_attempt_and_equal_messages_merge(service):
    service.set_faults([Fault.status(429, first=1)])
    threads = Counter()

    def key():
        threads[LOCAL.tenant, threading.get_ident()] += 1
        return of_thread()

    retry = RetryPolicy.safe(throttle_delay=0.01)
    with PushClient(api_key=key, retry=retry, batching=Batching(max_users=4, linger=5)) as client:
        callers = as_tenants(lambda tenant, number: client.send(f"{tenant}:{number}", HELLO) and threading.get_ident())
        stats = client.stats()
    assert {ident for _, ident in threads} == set(callers)
    assert set(threads.values()) == {2}
    assert stats.requests == 4
    assert stats.attempts == 8
    assert {tenant: len(users) for tenant, users in pushes(service).items()} == dict.fromkeys(TENANTS, 4)
