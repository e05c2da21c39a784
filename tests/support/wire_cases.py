"""The table of faults: events of an attempt, and the expected result of the client.

Written independently of the client's own table. ``test_matrix`` tests each fault alone, and at random.
"""

from pushsdk import Outcome, PayloadTooLargeError
from support import wire_tls
from support.wire_answers import BEHIND, BODIES, FOREIGN, NO_CONTENT, UNREADABLE, http_date, response
from support.wire_case import Case, Connects, Looks, Pooled, accepted, created, not_sent, rejected, unknown
from support.wire_faults import (
    answering,
    drip,
    endless,
    fin,
    first_byte,
    hold,
    never_read,
    on_accept,
    pause,
    read_half,
    read_head,
    read_request,
    rst,
    send,
    step,
    take,
)
from support.wire_network import another, black_hole, closed, closed_port, late_408, noticed, reset, stray_204, told

# 1. Never sent, and repeated.
NEVER_SENT = (
    not_sent("the name can't be resolved", Looks("fail")),
    not_sent("the name lookup hangs", Looks("hang"), hangs=True),
    not_sent("the port refuses", Connects(closed_port)),
    not_sent("the SYN is dropped", Connects(black_hole), hangs=True),
    not_sent("the TLS handshake is closed", Connects(another(on_accept(first_byte, fin))), tls=True),
    not_sent("the TLS handshake hangs", Connects(another(on_accept(hold))), tls=True, hangs=True),
)

HALF_LINE = b"HTTP/1.1 20"
HALF_HEAD = b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n"

# A spoiled pooled connection is replaced by a new one under every policy: the call does not notice.
STALE = (
    accepted("a pooled connection was closed unseen", Pooled(closed)),
    accepted("a pooled connection was reset unseen", Pooled(reset)),
    accepted("a pooled TLS connection was reset unseen", Pooled(reset), tls=True),
    accepted("a stray 204 waits on a pooled connection", Pooled(stray_204)),
    accepted("a late 408 waits on a pooled connection", Pooled(late_408)),
    accepted("a pooled connection was closed and it shows", Pooled(noticed(closed)), minor=True, race=True),
    accepted("a pooled connection was reset and it shows", Pooled(noticed(reset)), minor=True, race=True),
    accepted("a late 408 was read on a pooled connection", Pooled(noticed(late_408)), minor=True),
    accepted("garbage was read on a pooled connection", Pooled(noticed(told(b"garbage"))), minor=True, race=True),
)

# 2. Never sent, and it needs a person.
PLAIN_PORT = another(on_accept(first_byte, send(response(400, Connection="close")), fin))
MISCONFIGURED = (
    not_sent("TLS to a plain port", Connects(PLAIN_PORT), repeated=False, tls=True),
    not_sent("an untrusted certificate", Connects(another(None, wire_tls.untrusted)), repeated=False, tls=True),
    not_sent(
        "another host's certificate", Connects(another(None, wire_tls.other_host)), repeated=False, tls=True, minor=True
    ),
)

# 3. It may have been enqueued.
ONE_XX = b"HTTP/1.1 102 Processing\r\n\r\n"
IN_DOUBT = (
    unknown("closed on accept", on_accept(fin), race=True),
    unknown("reset on accept", on_accept(rst), race=True),
    unknown("closed at the first byte", step(fin)),
    unknown("closed after the head", step(read_head, fin)),
    unknown("reset mid-body", step(read_half, rst)),
    unknown("reset in the middle of a large body", step(read_half, rst), big=True, minor=True),
    unknown("reset after the whole request", step(read_request, rst)),
    unknown("closed after processing", step(take, fin)),
    unknown("reset after processing", step(take, rst)),
    unknown("reset after processing, over TLS", step(take, rst), tls=True),
    unknown("closed after the head, over TLS", step(read_head, fin), tls=True),
    unknown("silence after processing", step(take, hold), hangs=True),
    unknown("silence after the request", step(read_request, hold), minor=True, hangs=True),
    unknown("nothing is ever read", on_accept(never_read), big=True, hangs=True),
    unknown("half a status line, then reset", step(take, send(HALF_LINE), rst)),
    unknown("half a head, then closed", step(take, send(HALF_HEAD), fin)),
    unknown("a head that drips", step(take, drip(HALF_HEAD + b"X-B: " + b"b" * 200)), hangs=True),
    unknown("1xx without end", step(take, endless(ONE_XX, 0.005)), hangs=True),
    *(
        unknown(f"the answer is {name}", answering(data, processed=True), minor=name != "garbage")
        for name, data in UNREADABLE.items()
    ),
    unknown("a campaign: closed after processing", step(take, fin), campaign=True),
    unknown(
        "a large body, and a 204 before it was read",
        step(read_head, send(NO_CONTENT), fin),
        status=204,
        big=True,
        minor=True,
    ),
)

# 4. Accepted, if there is no body or it is JSON, in whatever state. A campaign lost its uuid.
PROMISE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTYPED = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
BROKEN_BODIES = {
    "is cut off": step(take, send(PROMISE % 99 + b'{"uu'), fin),
    "is reset": step(take, send(PROMISE % 99), rst),
    "stalls": step(take, send(PROMISE % 99 + b'{"uu'), hold),
    "drips": step(take, send(PROMISE % 99), drip(b" " * 99)),
    "without a type is cut off": step(take, send(UNTYPED + b'{"uu'), fin),
    "is 10 GB": step(take, send(PROMISE % 10**10), endless(b" " * 65536)),
    "never ends": step(take, send(CHUNKED), endless(b"8000\r\n" + b" " * 0x8000 + b"\r\n")),
    **{name: answering(data, processed=True) for name, data in BODIES.items()},
}
SLOW = ("stalls", "drips")
MAJOR_BODIES = ("is cut off", "stalls", "never ends", "is JSON without a type", "has no uuid")
ACCEPTED = (
    *(accepted(f"a push's body {name}", does, minor=name not in MAJOR_BODIES) for name, does in BROKEN_BODIES.items()),
    *(
        created(f"a campaign's body {name}", does, hangs=name in SLOW, minor=name not in MAJOR_BODIES)
        for name, does in BROKEN_BODIES.items()
    ),
    accepted(
        "100, 102 and 103, then 204",
        answering(
            b"HTTP/1.1 100 Continue\r\n\r\n" + ONE_XX + b"HTTP/1.1 103 Early Hints\r\n\r\n" + NO_CONTENT, processed=True
        ),
    ),
    accepted("a 204 with Content-Length: 0", answering(response(204, Content_Length=0), processed=True)),
    *(
        accepted(f"a 204, and behind it {name}", answering(head + rest, processed=True), minor="body" in name)
        for name, (head, rest) in BEHIND.items()
    ),
    *(
        accepted(
            f"a 204, and in the next packet {name}",
            step(take, send(head[:-1]), pause(0.01), send(head[-1:]), pause(0.01), send(rest)),
            minor=True,
        )
        for name, (head, rest) in BEHIND.items()
    ),
    *(
        accepted(
            f"a chunked 204, cut {cut} bytes before the end of its head",
            step(take, send(head[:-cut]), pause(0.01), send(head[-cut:] + rest)),
            minor=True,
        )
        for head, rest in [BEHIND["an empty body in chunks"]]
        for cut in (1, 2, 4)
    ),
    accepted("a 204 over TLS, and a body behind it", answering(NO_CONTENT + b"{}", processed=True), tls=True),
    accepted("a 204 whose body never comes", answering(response(204, Content_Length=2), processed=True), minor=True),
    accepted("two 204s at once", answering(NO_CONTENT * 2, processed=True), minor=True),
    accepted("a 204, then closed", step(take, send(NO_CONTENT), fin)),
    accepted("a head in two packets", step(take, send(HALF_HEAD), drip(b"\r\n"))),
    accepted("JSON whose first chunk is bad", answering(CHUNKED + b"not a size\r\n{}\r\n", processed=True), minor=True),
    accepted(
        "an encoding nobody knows", answering(response(200, b"{}", Content_Encoding="br"), processed=True), minor=True
    ),
    *(accepted(f"status {n}", answering(response(n), processed=True), minor=True) for n in (200, 201, 202, 206, 299)),
)

# A 2xx with a foreign or missing body.
UNPROVEN_BODIES = {
    **{name: answering(data) for name, data in FOREIGN.items()},
    "cut off before the first byte": step(take, send(UNTYPED), fin),
    "white space without end": step(take, send(UNTYPED.replace(b"99", b"10000000000")), endless(b" " * 65536)),
}
BAD_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n{}\r\n"
UNPROVEN = (
    *(
        unknown(f"a 2xx: {name}", does, status=200, minor=name != "an HTML page")
        for name, does in UNPROVEN_BODIES.items()
    ),
    unknown("a 2xx: silence before the body", step(take, send(UNTYPED), hold), status=200, minor=True, hangs=True),
    unknown("a 2xx: a bad first chunk", answering(BAD_CHUNK, processed=True), status=200),
    unknown("a campaign: an HTML page", answering(FOREIGN["an HTML page"]), status=200, campaign=True, minor=True),
)

# 5. Statuses that leave it open.
OPEN = tuple(
    unknown(f"status {status}", answering(response(status), processed=done), status=status, minor=status != 500)
    for status, done in ((101, False), (99, True), (999, False), (500, True), (502, False), (503, True), (504, True))
)

# 6. Rejected. 7. Rejected, and repeated because it may be.
REFUSALS = (300, 301, 304, 307, 400, 401, 403, 404, 407, 409, 413, 417, 421, 422, 426, 499, 501, 505)

REJECTED = (
    *(
        rejected(f"status {status}", status, minor=status not in (301, 400, 413), Location="/elsewhere")
        for status in REFUSALS
    ),
    rejected("status 408", 408, repeated=True),
    rejected("status 425", 425, repeated=True, minor=True),
    rejected("status 429", 429, repeated=True),
    rejected("429, again at once", 429, repeated=True, Retry_After=0),
    rejected("429, Retry-After is garbage", 429, repeated=True, minor=True, Retry_After="soon"),
    rejected("429, Retry-After is a past date", 429, repeated=True, minor=True, Retry_After=http_date(-60)),
    rejected("503, again at once", 503, repeated=True, Retry_After=0),
    unknown("503, Retry-After is garbage", answering(response(503, Retry_After="soon")), status=503, minor=True),
    Case(
        "413 before the large body was read",
        step(read_head, send(response(413, Connection="close")), fin),
        Outcome.REJECTED,
        PayloadTooLargeError,
        413,
        big=True,
        minor=True,
    ),
)

CASES = (*NEVER_SENT, *STALE, *MISCONFIGURED, *IN_DOUBT, *ACCEPTED, *UNPROVEN, *OPEN, *REJECTED)

MAJOR = tuple(case for case in CASES if not case.minor)
"""Those that are met among good requests too."""
