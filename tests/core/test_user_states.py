"""UserStates: its JSON and its bounds. What they add up to is in ``runs/test_journal_model``."""

import msgspec
import pytest

from pushsdk._core.user_states import Run, UserStates

runs = msgspec.json.Decoder(list[Run]).decode


def test_a_record_may_leave_out_the_defaults_at_the_end_of_a_run():
    states = UserStates.read(runs(b'[["ACCEPTED",4,204],["UNKNOWN",1,null,"HTTP 500",true],["PENDING",5]]'))
    data = b'[["ACCEPTED",4,204,"",false],["UNKNOWN",1,null,"HTTP 500",true],["PENDING",5,null,"",false]]'
    assert msgspec.json.encode(states.stored()) == data
    assert states.resent == 1


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[[]]", b'[["PENDING"]]', b'[["PENDING",0]]', b'[["PENDING",true]]', b'[["GONE",1]]'),
        *(b'[["PENDING",1,"204"]]', b'[["PENDING",1,null,"",false,1]]', b"\xff", b"[" * 100_000),
    ],
)
def test_what_is_no_json_of_states_is_refused(data):
    with pytest.raises(ValueError):
        runs(data)
