"""Drivers of the kill tests: a run, jobs, an Arrow plan, sent by processes in turn or at the same time."""

import random

from pushsdk import RunFileError, read_report
from pushsdk._core.idempotency import ClaimRecord
from pushsdk._core.user_states import UserState
from support.claim_stores import store_at_place
from support.kill_judge import Plan, judge, verdict
from support.kill_service import name_of, number_of
from support.service_thread import wait_until

IN_FLIGHT = 8
# From the least to the most informative about a job.
STRENGTH = ["NOT_SENT", "REJECTED", "UNKNOWN", "ALREADY_ACCEPTED", "ACCEPTED"]
# The rows of larger runs are checked only at the end, not after every kill.
EVERY_ROW = 50_000


class Driver:
    """The jobs of the processes (see ``kill_child``), and what they reported.

    ``lives`` yields the jobs of processes that live at the same time, until nobody is left to send to. ``in_doubt``
    returns how many users have been claimed, None before anything was written. ``outcomes`` checks the reports, and
    returns that of each user.
    """

    def __init__(self, driver, users, chunk, **options):
        self.users = users
        self.chunk = chunk
        self.job = {"driver": driver, "users": users, "chunk": chunk, "in_flight": IN_FLIGHT, **options}
        #: The users whom the next process sends to, at least.
        self.pending = users // 2

    def requests(self, kills):
        """Return how many requests may be sent before the next kill, so that ``kills`` have something to interrupt."""
        return max(2, self.pending // self.chunk // (kills + 1))

    def check(self, lives, service, *, doubt):
        """Give the verdict after the end of these lives, and return the totals."""
        told = self.outcomes(lives)
        return verdict(((outcome, service.pushes[user], 0) for user, outcome in told.items()), doubt=doubt)


class Run(Driver):
    """A run, and its resumes until nobody is left."""

    claims_at = "pushsdk._runs.log.RunFileLog.claim"
    settles_at = "pushsdk._runs.log.RunFileLog.settle"

    def __init__(self, path, users, chunk, *, do="broadcast", **options):
        super().__init__("run", users, chunk, run=str(path), do=do, **options)
        self._path = path
        self._hold = options.get("on_unknown") != "resend"
        self._plan = None
        #: True if a kill may come when all users are settled: in the last commit, which notes the end.
        self.may_be_complete = False

    def lives(self, kills):
        yield [self.job]
        while self.pending:
            yield [{**self.job, "do": "resume"}]

    async def in_doubt(self):
        try:
            return read_report(self._path).unknown
        except RunFileError:
            return None

    def check(self, lives, service, *, doubt):
        report = read_report(self._path)
        plan = self._plan = self._plan or Plan(self._path)
        self.pending = report.not_sent + (0 if self._hold else report.unknown)
        every = not self.pending or self.users <= EVERY_ROW
        judge(self._path, plan, report, service.pushes, hold=self._hold, every=every, doubt=doubt)
        if lives[0].said:
            assert lives[0].said == [{"accepted": report.accepted, "planned": self.users, "stopped": None}]
        else:
            assert self.pending or self.may_be_complete, "killed, but not in the middle"
        assert service.messages <= {(user, user // self.chunk) for user in range(self.users)}
        return {"ACCEPTED": report.accepted, "UNKNOWN": report.unknown}


class Processes(Driver):
    """A broadcast by several processes, and its resumes with another number of them."""

    def __init__(self, folder, users, *words):
        self._run = folder / "spring"
        source = folder / "users.csv"
        source.write_text("user_id,n\n" + "".join([f"{name_of(user)},{user}\n" for user in range(users)]))
        (folder / "message.json").write_text('{"title": {"en": "Hi"}, "iosEnabled": true}')
        given = ["broadcast", str(source), "--message", str(folder / "message.json"), "--run", str(self._run), *words]
        super().__init__("command", users, 1 if words else 1000, words=given)
        self._dice = random.Random(users)

    def lives(self, kills):
        options = ["--in-flight", str(IN_FLIGHT), "--progress", "none", "--no-stop-policy"]
        while self.pending:
            resume = ["resume", str(self._run)] if self._run.exists() and self._dice.random() < 0.5 else None
            words = [*(resume or self.job["words"]), "--processes", str(self._dice.randint(1, 3)), *options]
            yield [{**self.job, "words": words}]

    def outcomes(self, lives):
        if not self._run.exists():
            return {}
        # The children of a killed parent record what was answered.
        wait_until(lambda: not read_report(self._run).in_use)
        report = read_report(self._run)
        self.pending = report.not_sent
        rows = [(number_of(row.user_id), row.outcome.name) for row in report.rows()]
        told = dict(rows)
        assert (len(told), len(rows), report.planned) == (self.users,) * 3
        assert [report.accepted, report.unknown] == [[*told.values()].count(name) for name in ("ACCEPTED", "UNKNOWN")]
        return told


class ClaimDriver(Driver):
    """Work that is sent under the claims of a store."""

    claims_at = "pushsdk._runs.claim_log.ClaimLog.claim"
    settles_at = "pushsdk._runs.claim_log.ClaimLog.settle"

    async def in_doubt(self):
        async with store_at_place(self.job["kind"], self.job["place"]) as store:
            records = [ClaimRecord.decode(claim.record).states() async for _, claim in store.scan()]
        claimed = (UserState.CLAIMED, UserState.UNKNOWN)
        return sum([record.count(state) for record in records for state in claimed]) if records else None


class Jobs(ClaimDriver):
    """Jobs that are delivered again until they are known to be accepted, by two processes at the same time."""

    def __init__(self, kind, place, users, chunk):
        super().__init__("jobs", users, chunk, kind=kind, place=place, numbers=list(range(users)))
        self._dice = random.Random(5)
        #: The most informative outcome of each job.
        self._told = {}

    def lives(self, kills):
        self.pending = self.users // (kills + 1)
        for number in range(kills + 2):
            # Each time with some new jobs.
            share = range(min(self.users, (number + 1) * self.users // (kills + 1)))
            left = [job for job in share if "ACCEPTED" not in self._told.get(job, "")]
            processes = 2 if number <= kills else 1
            yield [{**self.job, "numbers": self._dice.sample(left, len(left))} for _ in range(processes)]

    def outcomes(self, lives):
        for number, outcome in [word for life in lives for word in life.said]:
            known = self._told.get(number, "NOT_SENT")
            assert (known, outcome) != ("ACCEPTED", "ACCEPTED"), "accepted by two deliveries"
            self._told[number] = max(outcome, known, key=STRENGTH.index)
        return {number: self._told.get(number, "UNKNOWN").removeprefix("ALREADY_") for number in self.job["numbers"]}


class ArrowPlan(ClaimDriver):
    """A plan that is sent by killed processes, and then by two at the same time."""

    def __init__(self, kind, place, users, chunk, *, personal):
        super().__init__("plan", users, chunk, kind=kind, place=place, personal=personal, rows=3, step=1)

    def lives(self, kills):
        yield from [[{**self.job, "rows": number + 1}] for number in range(kills)]
        yield [self.job, {**self.job, "rows": 5, "step": -1}]
        yield [self.job]

    def outcomes(self, lives):
        told = {}
        for life in lives:
            rows = [row for words in life.said for row in words]
            own = dict(rows)
            assert len(own) == len(rows), "a user is reported twice"
            # Each process reports as UNKNOWN what the other has on its way.
            told |= {user: outcome for user, outcome in own.items() if told.get(user) != "ACCEPTED"}
        return told
