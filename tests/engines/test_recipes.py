"""The guide's programs for Ray, Dask and Spark: a worker is killed, and no push is lost or doubled."""

import pytest
from support.engine_lab import installed
from support.engine_recipes import outcomes_of, ran, recipe

from pushsdk.emulator import Fault

USERS = 20_000
# Smaller requests and fewer at a time, so a kill hits the middle of the run.
SMALLER = {
    "1000": "50",
    "run=": "limits=Limits(in_flight=4), run=",
    "import Audience": "import Audience, Limits",
    # A worker that has no part yet, as the machine is busy, has nothing in flight.
    "    chunks = pq": "    (RUN / 'sending').open('a').write(f'{os.getpid()} ')\n    chunks = pq",
}


@pytest.mark.parametrize("name", ["dask_broadcast.py", "ray_broadcast.py"])
def test_a_worker_is_killed(name, service, tmp_path):
    installed(name.partition("_")[0])
    # So some requests are always in flight; the service accepts them even after their client has died.
    service.begin([Fault.delay(0.5, every=8, name="slow"), Fault.delay(0.05, name="all")])
    program = recipe(name, tmp_path, service, users=USERS, changed=SMALLER)
    ran(program, tmp_path, service)
    pushed = service.users()
    outcomes = outcomes_of(tmp_path)
    assert set(pushed.values()) == {1}
    assert outcomes.keys() == {f"user-{number}" for number in range(USERS)}
    assert {outcomes[user] for user in outcomes.keys() - pushed.keys()} <= {"UNKNOWN"}
    assert {outcomes[user] for user in pushed} == {"ACCEPTED", "UNKNOWN"}
    # Each of the killed worker's four slots: a request in flight, and one whose answer was not yet written.
    assert 0 < list(outcomes.values()).count("UNKNOWN") <= 2 * 4 * 50


def test_the_example_for_spark_runs(service, tmp_path):
    installed("spark")
    with recipe("spark_broadcast.py", tmp_path, service, users=250, changed={}) as program:
        assert program.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
    assert service.users() == {f"user-{number}": 1 for number in range(250)}
    assert service.texts()["user-7"][0]["title"] == {"en": "Hello N7"}
    assert (tmp_path / "log").read_text().splitlines()[-1].endswith("250 0 0")
