"""Ids that are damaged, or are not ids: each sign is found in an id alone and among others, and a plain id has none."""

from pushsdk._core.body import encode_user_ids
from pushsdk._core.damage import damage_in, damage_of


def _words(*texts):
    return " ".join(texts).split(" ")


DAMAGED = {
    "missing": _words(r"None nan NaN NaT NA <NA> N/A null NULL (null) [NULL] \N nil undefined inf -Infinity"),
    "error": _words("#N/A #REF! #DIV/0! #NAME? #NV #WERT! #¡VALOR! ######## #GETTING_DATA -1.#IND"),
    "shortened": _words("1.23457E+11 1,23457E+11 1e+20 -1.5E+7 1.23457E11 1.5E-7 1,5E11"),
    ".0": _words("17.0 1.00 17,0 -3.000 1.0000"),
    "formula": _words('="00123" =A1 \'00123'),
    "quotation": _words('"ann" "ann'),
    "variable": _words("user-{i} ${id} $ID {{user_id}} {user.id}"),
    "column": _words("user_id userId UserID USER-ID customer_id ID email"),
    "several": _words("ann,Bonn ann;bob a\tb"),
    "begins or ends": [" ann", "ann ", "ann\r", "\u00a0ann", "ann\n"],
    "invisible": _words(
        "\ufeffann ann\u200b a\u00adn a\u00a0n \u2060ann \u202eann ann\u200c a\x00b a\x7fb M\ufffdller \u200cñ"
    ),
}
PLAIN = _words(
    "user-1 00123 1e3 12345e10 v1.0 10.0.0.1 +46701234567 ann@example.com a0EEBC99-9C0B auth0|5f7c8 YWJj+/== O'Brien",
    "n nancy Nat #Nancy None-1 identity {3F25-4F89} 5% ünï \u0633\u0644\u200c\u0647 \U0001f469\u200d\U0001f680 a=b",
    "key:1 https://x.org/~ann 田中",
)


def test_damage_is_named_for_an_id_alone_and_among_others():
    for kind, damaged in DAMAGED.items():
        for user in damaged:
            for users in ([user], [*"0123ünï", user]):
                [damage] = damage_of(users, encode_user_ids(users))
                assert damage == damage_in(user)
                assert kind in damage


def test_a_plain_id_has_no_damage():
    users = [*PLAIN, "a b"]
    assert [damage_in(user) for user in users] == [None] * len(users)
