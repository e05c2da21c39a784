"""User ids that readers take for something else, drawn at random."""

import random

ALPHABET = "0123456789abcXYZ.-+_:@/\\'\"`,;|\t #%&=()[]{}<>?!*$~^éß中\u00a0\u200b\u2028\ufeff\U0001f600"
# As numbers, dates, truth values, nothing, JSON and SQL are written.
SHAPES = [
    lambda draw: f"{draw.randrange(10**6):08}",
    lambda draw: f"{draw.choice('+-')}{draw.randrange(10**5)}",
    lambda draw: f"{draw.randrange(10**4)}{draw.choice(['e', 'E', 'e+', '.', 'x', '_'])}{draw.randrange(30)}",
    lambda draw: str(draw.randrange(10**30)),
    lambda draw: f"0x{draw.randrange(2**40):x}",
    lambda draw: str(draw.uniform(-1e9, 1e9)),
    lambda draw: f"{draw.randrange(2**128):032X}",
    lambda draw: "{:08X}-{:04x}-4{:03x}-A{:03X}-{:012x}".format(
        *map(draw.randrange, [2**32, 2**16, 2**12, 2**12, 2**48])
    ),
    lambda draw: f"20{draw.randrange(10, 30)}-{draw.randrange(1, 13)}-{draw.randrange(1, 29):02}",
    lambda draw: f"{draw.randrange(24)}:{draw.randrange(60):02}:00",
    lambda draw: draw.choice(["true", "NO", "NULL", "null", "NaN", "inf", "None", "\\N", "[]", '""', "''", "{}", "-"]),
    lambda draw: "".join(draw.choices(ALPHABET, k=draw.randrange(1, 12))),
]


def odd_ids(seed):
    """Return distinct ids that a line of text can hold."""
    draw = random.Random(seed)
    found = {}
    while len(found) < 10_000:
        user = draw.choice(SHAPES)(draw)
        if user == user.strip() and not user.startswith("\ufeff"):
            found[user] = None
    return [*found]
