"""The event log: consecutive marks from any thread."""

from concurrent.futures import ThreadPoolExecutor

from pushsdk.emulator.inboxes import EventLog


def test_a_reader_gets_the_events_of_several_threads_in_order_and_each_once():
    events, mark, seen = EventLog(), 0, []
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(events.publish, "faults") for _ in range(300)]
        while mark < 300:
            mark, new = events.since(mark)
            seen += [event.mark for event in new]
    assert [writer.exception() for writer in writers] == [None] * 300
    assert seen == list(range(1, 301))
