"""Processes for tests to kill: one sends a run, delivers jobs, or sends an Arrow plan."""

import asyncio
import os
import pkgutil
import resource
import signal

from pushsdk import AsyncPushClient, Batching, Limits, PushError, PushRequest, RetryPolicy, StopPolicy, Timeout, cli
from pushsdk._io import retrying  # noqa: F401 - so that no child has to import it
from pushsdk.arrow import push_batches
from support.arrow_plans import plan
from support.claim_stores import store_at_place
from support.kill_service import name_of, number_of

KEY = "key-of-the-killed-1f3a"
MESSAGE = {"title": {"en": "Spring"}, "body": {"en": "It is here"}, "iosEnabled": True}
NO_BRAKE = StopPolicy.off()


def live(job, says):
    """The whole life of a process."""
    # Without its parent and its service it would go on for ever: it ends after this many seconds of CPU time.
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    if "file_size" in job:
        # By default Python ignores the signal, and the write fails; as this program does it, it kills.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if job.get("deadly") else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], job["file_size"]))
    if "dies_at" in job:
        # The call at which the process kills itself.
        name, _, method = job["dies_at"].rpartition(".")
        setattr(pkgutil.resolve_name(name), method, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    DRIVERS[job.get("driver", "run")](job, says.send)


def api_key():
    """Return the key. A process may die here."""
    return KEY


def options_of(job):
    """The options of the client."""
    return {
        "base_url": job["base_url"],
        "api_key": lambda: api_key(),
        "batching": Batching(max_users=job["chunk"]),
        "limits": Limits(in_flight=job["in_flight"]),
        "retry": RetryPolicy.safe(initial_delay=0.005, max_delay=0.02, throttle_delay=0.005),
        "timeout": Timeout(total=120.0, attempt=20.0),
    }


# -- a run --------------------------------------------------------------------------------------------------------


def requests(users, chunk):
    """Yield one numbered request per ``chunk`` users."""
    for number, start in enumerate(range(0, users, chunk)):
        names = [name_of(user) for user in range(start, min(start + chunk, users))]
        yield PushRequest(user_ids=names, message=MESSAGE, custom_fields={"number": number})


def ids(users):
    """Ids of all users."""
    return map(name_of, range(users))


def names(count):
    return list(ids(count))


async def send_run(job):
    """Broadcast or resume, and return the counts of the report."""
    options = {name: job[name] for name in ("run", "on_unknown", "durable", "limit") if name in job}
    async with AsyncPushClient(**options_of(job)) as client:
        try:
            if job["do"] == "broadcast":
                report = await client.broadcast(ids(job["users"]), MESSAGE, stop_policy=NO_BRAKE, **options)
            elif job["do"] == "each":
                each = requests(job["users"], job["chunk"])
                report = await client.send_each(each, stop_policy=NO_BRAKE, **options)
            else:
                report = await client.resume(stop_policy=NO_BRAKE, **options)
        except PushError as error:
            return {"error": type(error).__name__, "told": str(error), "outcome": error.outcome}
    return {"accepted": report.accepted, "planned": report.planned, "stopped": report.stopped}


# -- jobs with an idempotency key ---------------------------------------------------------------------------------


async def deliver(job, say):
    """Deliver the jobs with these numbers at once, one for each user, and say what each delivery was told."""
    store = store_at_place(job["kind"], job["place"])
    async with store, AsyncPushClient(**options_of(job), claims=store) as client:

        async def one(number):
            try:
                receipt = await client.send(name_of(number), MESSAGE, idempotency_key=f"job-{number}")
            except PushError as error:
                say((number, str(error.outcome)))
            else:
                say((number, "ALREADY_ACCEPTED" if receipt.already_accepted else "ACCEPTED"))

        await asyncio.gather(*map(one, job["numbers"]))


# -- an Arrow plan ------------------------------------------------------------------------------------------------


def send_plan(job, say):
    """Send to the users of a plan, in another order in each life, and say the outcomes of each batch."""
    batches = plan(job["users"], size=job["chunk"], rows=job["rows"], personal=bool(job["personal"]))
    outcomes = push_batches(
        batches[:: job["step"]],
        MESSAGE,
        run="spring",
        claims=lambda: store_at_place(job["kind"], job["place"]),
        personal=job["personal"],
        stop_policy=NO_BRAKE,
        **options_of(job),
    )
    for batch in outcomes:
        say([(number_of(row["user_id"]), row["outcome"]) for row in batch.to_pylist()])


# -- the command line ---------------------------------------------------------------------------------------------


def run_command(job, say):
    """Run a command, and say its exit code."""
    os.environ |= {"PUSHSDK_BASE_URL": job["base_url"], "PUSHSDK_API_KEY": KEY}
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    say(cli.main(job["words"]))


DRIVERS = {
    "command": run_command,
    "run": lambda job, say: say(asyncio.run(send_run(job))),
    "jobs": lambda job, say: asyncio.run(deliver(job, say)),
    "plan": send_plan,
}
