"""The end of a call: complete, closed in the middle, by an error of the caller's, the input's or the store's.

Each time nothing new starts, what is on the wire ends and is settled, and no thread is left.
"""

import gc
import signal
import threading
import time
from pathlib import Path

import pytest
from support.arrow_plans import MESSAGE, counts, plan, reported
from support.programs import run_program

from pushsdk import ConfigurationError, Limits, NotSentError, ValidationError
from pushsdk._runs import planner
from pushsdk.arrow import _push, push_batches
from pushsdk.arrow._dispatcher import AHEAD
from pushsdk.claims import MemoryClaims
from pushsdk.emulator import Fault


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "pushsdk"]


class CountedPlan:
    """A plan's batches, and how many were asked for."""

    def __init__(self, batches):
        self._batches = batches
        self.asked = 0

    def __iter__(self):
        for batch in self._batches:
            self.asked += 1
            yield batch


# -- when it begins ---------------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_outcome_is_asked_for(push_env, sent):
    batches = CountedPlan(plan(10))
    outcomes = sent(batches)
    assert threads() == []
    assert batches.asked == 0
    del outcomes
    push_env.assert_nothing_sent()


@pytest.mark.parametrize(
    ("wrong", "told_of"),
    [
        ({"claims": None}, "claims must be a callable"),
        ({"run": ""}, "run must be a str that is not empty"),
        ({"run": "daily-{date}"}, "run must be a name without a placeholder"),
        ({"run": "\ud800"}, "NUL or lone surrogates"),
        ({"personal": "text"}, "personal must be"),
        ({"stop_policy": 0.5}, "stop_policy must be a StopPolicy"),
        ({"message": "Hello"}, "message"),
    ],
)
def test_a_wrong_argument_is_found_at_once(push_env, wrong, told_of):
    options = {"message": MESSAGE, "run": "spring", "claims": MemoryClaims, **wrong}
    with pytest.raises((ConfigurationError, ValidationError), match=told_of):
        push_batches([], **options)


def test_an_unknown_keyword_suggests_the_nearest():
    with pytest.raises(TypeError, match=r"^push_batches\(\) got an .*'retrys': did you mean 'retry'\?$"):
        push_batches([], MESSAGE, run="spring", claims=MemoryClaims, retrys=None)


def test_a_factory_that_makes_no_store_is_an_error(push_env, sent):
    with pytest.raises(ConfigurationError, match=r"claims\(\) must be a claim store"):
        list(sent(plan(10), claims=lambda: None))
    with pytest.raises(ZeroDivisionError):
        list(sent(plan(10), claims=lambda: 1 // 0))
    push_env.assert_nothing_sent()


def test_the_store_is_made_in_the_thread_of_the_client_and_closed_there(push_env, sent):
    threads = []

    class ThreadRecordingClaims(MemoryClaims):
        def __init__(self):
            super().__init__()
            threads.append(threading.current_thread().name)

        async def aclose(self):
            threads.append(threading.current_thread().name)

    list(sent(plan(10), claims=ThreadRecordingClaims))
    assert threads == ["pushsdk", "pushsdk"]


# -- left in the middle -----------------------------------------------------------------------------------------------


def _closed(outcomes):
    outcomes.close()


def _dropped(outcomes):
    del outcomes
    gc.collect()


@pytest.mark.parametrize("leave", [_closed, _dropped])
def test_closing_in_the_middle_settles_requests_in_flight_and_sends_no_more(push_env, sent, leave):
    batches = CountedPlan(plan(1500))
    with push_env.fault(Fault.delay(0.05)):
        generators = [sent(batches, limits=Limits(in_flight=4))]
        next(generators[0])
        leave(generators.pop())
        assert threads() == []
        count = len(push_env.users())
        assert 10 <= count < 1000
    assert batches.asked < 50
    assert len(push_env.users()) == count
    assert counts(sent(plan(1500))) == {"ACCEPTED": 1500}
    push_env.assert_no_duplicates()


def test_a_request_that_exceeds_the_drain_is_ended_and_unknown(push_env, sent, monkeypatch):
    monkeypatch.setattr(_push, "DRAIN", 0.05)
    with push_env.fault(Fault.hang(accepted=True, user="user-15")):
        outcomes = sent(plan(20))
        next(outcomes)
        push_env.wait_for(condition=lambda: push_env.accepted("user-15"), timeout=30.0)
        outcomes.close()
    assert counts(sent(plan(20))) == {"ACCEPTED": 10, "UNKNOWN": 10}
    push_env.assert_no_duplicates()


def test_an_error_of_the_input_is_raised_after_the_outcomes(push_env, sent):
    def broken():
        yield from plan(100, rows=1)
        raise OSError("the disk")

    batches = []
    with pytest.raises(OSError, match="the disk"):
        batches.extend(sent(broken()))
    # ``extend`` keeps what came before the error.
    statuses = reported(batches)
    assert {user for user, one in statuses.items() if one.outcome == "ACCEPTED"} == set(push_env.users())
    assert counts(sent(plan(100))) == {"ACCEPTED": 100}
    push_env.assert_no_duplicates()


def test_ctrl_c_during_the_wait_for_an_outcome_settles_requests_in_flight(push_env, sent):
    class InterruptingClaims(MemoryClaims):
        interrupts = 1

        async def put(self, puts, ttl):
            if puts[0].expected and self.interrupts:
                self.interrupts = 0
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return await super().put(puts, ttl)

    store = InterruptingClaims()
    with push_env.fault(Fault.delay(0.1)), pytest.raises(KeyboardInterrupt):
        list(sent(plan(400), claims=lambda: store, limits=Limits(in_flight=2)))
    assert threads() == []
    assert counts(sent(plan(400), claims=lambda: store)) == {"ACCEPTED": 400}
    push_env.assert_no_duplicates()


FORKED = """
    import os, sys, time, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    sys.path.append(sys.argv[1])
    from support.arrow_plans import MESSAGE, plan
    from pushsdk import Limits, OutcomeUnknownError
    from pushsdk.arrow import push_batches
    from pushsdk.claims import MemoryClaims

    outcomes = push_batches(plan(300), MESSAGE, run="spring", claims=MemoryClaims, limits=Limits(in_flight=2))
    count = next(outcomes).num_rows
    # More have come meanwhile.
    while outcomes.gi_frame.f_locals["call"].callbacks.empty():
        time.sleep(0.001)
    if not (pid := os.fork()):
        try:
            next(outcomes)
        except OutcomeUnknownError:
            sys.exit(42)
        sys.exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(code, count + sum(batch.num_rows for batch in outcomes))
"""


def test_a_generator_copied_by_a_fork_yields_nothing_again(push_env):
    assert run_program(FORKED, str(Path(__file__).parents[1])) == (0, "42 300\n", "")
    push_env.assert_no_duplicates()


def test_a_thread_that_can_not_start_is_an_error_and_leaves_nothing(push_env, sent, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NotSentError, match="can't start"):
            next(sent(plan(10)))
    push_env.assert_nothing_sent()


# -- the two threads --------------------------------------------------------------------------------------------------


def test_input_is_read_as_there_is_room_for_its_outcomes(push_env, sent, monkeypatch):
    monkeypatch.setattr(planner, "BLOCK_SECONDS", 60.0)
    batches = CountedPlan(plan(1500, rows=1))
    outcomes = sent(batches, limits=Limits(in_flight=4))
    tables = [next(outcomes)]
    deadline = time.monotonic() + 10.0
    while len(push_env.pushes) < AHEAD and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert AHEAD <= len(push_env.pushes) <= 4 + AHEAD + 2
    assert batches.asked <= 4 + AHEAD + AHEAD
    tables += outcomes
    assert counts(tables) == {"ACCEPTED": 1500}
    assert batches.asked == 150


def test_the_chunks_of_slow_batches_are_sent_before_the_next_batch_is_there(push_env, sent, monkeypatch):
    # As if each chunk took longer than a block may take.
    monkeypatch.setattr(planner, "BLOCK_SECONDS", 0.0)

    def batches():
        for number, batch in enumerate(plan(40)):
            yield batch
            push_env.wait_for(f"user-{min(30 * number + 29, 39)}", timeout=60.0)

    assert counts(sent(batches())) == {"ACCEPTED": 40}


def test_without_pyarrow_it_says_how_to_get_it():
    program = run_program("import sys; sys.modules['pyarrow'] = None; import pushsdk.arrow")
    assert "ImportError: pushsdk.arrow needs pyarrow (the extra 'arrow'): pip install pyarrow" in program.err


def test_the_end_of_the_interpreter_ends_an_open_generator(push_env):
    program = run_program(
        """
        import pyarrow as pa
        from pushsdk.arrow import push_batches
        from pushsdk.claims import MemoryClaims

        chunks = {"chunk_id": [str(n) for n in range(1000)], "user_ids": [[f"user-{n}"] for n in range(1000)]}
        batch = pa.RecordBatch.from_pydict(chunks)
        outcomes = push_batches([batch], {"iosEnabled": True, "title": {"en": "x"}}, run="spring", claims=MemoryClaims)
        print(next(outcomes).num_rows)
        """
    )
    assert program.code == 0
    assert program.out.strip() == "1"
    assert program.err == ""
    push_env.assert_no_duplicates()
