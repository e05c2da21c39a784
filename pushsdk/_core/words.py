"""Text that errors and commands share."""

import functools
import re
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import groupby
from pathlib import PurePath
from typing import Any, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
# Flags of code, as in the module ``inspect``, which is slow to import.
_VAR_KEYWORDS, _COROUTINE = 0x08, 0x80


def count(number: int, noun: str = "user") -> str:
    """Return the number with its noun: ``1 user``, ``2,000 users`` or ``2 pushes``."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('sh') else 's'}"


def near_word(word: str, words: Iterable[str], cutoff: float = 0.8) -> str | None:
    """Return the word that ``word`` may be a typo of, ignoring case and separators; None if there is none."""
    return _near_word(word, tuple(words), cutoff) if len(word) <= 40 else None  # difflib is quadratic


@functools.lru_cache(maxsize=1024)  # 40 us for a field; every mapping of a broadcast may have the same unknown field
def _near_word(word: str, words: tuple[str, ...], cutoff: float) -> str | None:
    import difflib  # slow to import

    folded = {fold(known): known for known in words}
    swapped = [known for known in folded if sorted(known) == sorted(fold(word))]
    close = swapped or difflib.get_close_matches(fold(word), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def fold(word: str) -> str:
    """Return the word in lower case, without separators."""
    return re.sub(r"[\s_-]", "", word).lower()


# Names that other libraries have, folded, and ours: the first that the function takes counts.
ALIASES = {
    **dict.fromkeys(("maxretries", "retries", "attempts"), ("max_attempts", "retry")),
    **dict.fromkeys(("maxattempts", "total"), ("max_attempts", "retry", "planned")),
    **dict.fromkeys(("copy", "modelcopy", "evolve"), ("replace",)),
    **dict.fromkeys(("backoff", "backofffactor"), ("initial_delay",)),
    "statusforcelist": ("retry_on",),
    **dict.fromkeys(("data", "payload", "extra"), ("key_vals", "custom_fields")),
    **dict.fromkeys(("text", "message", "content", "contents", "alert"), ("answer", "body", "label", "MobilePush")),
    **dict.fromkeys(("heading", "headings", "subject"), ("title",)),
    **dict.fromkeys(("url", "link", "deeplink"), ("base_url", "android_action_url", "url")),
    **dict.fromkeys(("host", "endpoint"), ("base_url",)),
    **dict.fromkeys(("token", "key", "secret", "apitoken"), ("api_key",)),
    **dict.fromkeys(("verify", "cert"), ("ssl",)),
    **dict.fromkeys(("concurrency", "maxconnections"), ("limits", "in_flight")),
    "timetolive": ("ttl",),
    "badge": ("badge_count",),
    **dict.fromkeys(("channel", "channelid"), ("android_channel",)),
    "sound": ("sound_file_name",),
    "ios": ("ios_enabled",),
    "android": ("android_enabled",),
    **dict.fromkeys(("image", "picture"), ("big_image_url",)),
    "icon": ("large_icon_url",),
    "silent": ("content_available",),
    **dict.fromkeys(("push", "notify", "sendpush"), ("send",)),
    **dict.fromkeys(("close", "shutdown", "stop"), ("aclose", "close")),
    **dict.fromkeys(("dict", "asdict", "json", "tojson", "modeldump"), ("to_dict",)),
    **dict.fromkeys(("fromcsv", "fromfile", "fromparquet", "readcsv"), ("read",)),
    **dict.fromkeys(("assertnotsent", "assertnotcalled"), ("assert_nothing_sent",)),
    **dict.fromkeys(("assertcalled", "assertcalledonce", "assertsentonce"), ("assert_sent",)),
    **dict.fromkeys(("calls", "requests", "sent"), ("pushes", "accepted", "requests")),
    "users": ("planned",),
    **dict.fromkeys(("count", "calledcount"), ("hits", "users")),
    **dict.fromkeys(("failed", "failures", "failurecount"), ("rejected",)),
    **dict.fromkeys(("successcount", "success", "delivered", "accepted"), ("accepted", "users")),
    **dict.fromkeys(("client", "syncclient", "syncpushclient"), ("PushClient",)),
    "asyncclient": ("AsyncPushClient",),
    "response": ("answer",),
    "notification": ("MobilePush",),
    "campaign": ("CampaignRequest",),
    "button": ("ActionButton",),
    **dict.fromkeys(("statuscode", "ok", "outcome"), ("status",)),
    **dict.fromkeys(("times", "once"), ("first",)),
    **dict.fromkeys(("id", "messageid"), ("user_id", "uuid")),
}


def check_keywords(
    function: Callable[..., object], names: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] = {}
) -> None:
    """Raise TypeError for the first name in the alphabet that is not known.

    The text has its advice in ``elsewhere``, or the nearest parameter.
    """
    if (name := min({*names}.difference(known), default=None)) is not None:
        import inspect  # slow to import

        parameters = inspect.signature(function).parameters.values()
        own_names = {own.name for own in parameters if own.kind is not own.VAR_KEYWORD}
        words = sorted(own_names.union(known) - {"self", "cls", "return"})
        near = alias(name, words)
        same = [word for word in words if len(part := fold(name)) > 2 and (part in fold(word) or fold(word) in part)]
        near = near or near_word(name, words) or near_word(name, same or words, 0.0 if len(same) == 1 else 0.65)
        text = f"{function.__qualname__.removesuffix('.__init__')}() got an unexpected keyword argument {name!r}"
        advice = f"did you mean {near!r}?" if near else f"the name{'s are' if words[1:] else ' is'} {', '.join(words)}"
        if moved := name if name in elsewhere else alias(name, elsewhere):
            advice = elsewhere[moved]
        raise TypeError(f"{text}: {advice}") from None


def hint_calls(function: F) -> F:
    """Decorate a function: the TypeError of a wrong call names the nearest parameter, or those that need a keyword."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # by pytest
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ and error.__traceback__.tb_next:
                raise  # the function itself raised it
            if not code.co_flags & _VAR_KEYWORDS:
                check_keywords(function, kwargs, parameters)
            by_name = ", ".join(parameters[code.co_argcount :])
            advice = (
                f": the other arguments are by keyword: {by_name}" if by_name and "were given" in str(error) else ""
            )
            raise TypeError(f"{error}{advice}") from None

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return await call(*args, **kwargs)

    return cast("F", functools.wraps(function)(call_async if code.co_flags & _COROUTINE else call))


def plain_error(error: Exception, names: tuple[str, ...] = ()) -> str:
    """Return msgspec's error in plain words, after its path; an unknown name with the nearest of ``names``."""
    text, _, path = str(error).partition(" - at `$")
    if unknown := re.fullmatch(r"(?:Object contains unknown (field)|Invalid enum (value)) [`'](.*)[`']", text):
        near = near_word(unknown[3], names)
        advice = f", did you mean {near}?" if near else f": use {', '.join(names)}"
        text = f"unknown {unknown[1] or unknown[2]} {unknown[3]!r}{advice}"
    # For example "Expected `object`, got `null`".
    text = text.replace(" | null", "").replace("Expected `bool`", "expected True or False")
    text = text.replace("Object missing required field", "missing field").replace("Expected `int", "expected an int")
    text = text.replace("Expected `float", "expected a number").replace("Expected", "expected a")
    text = text.replace("`object`", "mapping").replace("`array`", "list").replace("`null`", "None").replace("`", "")
    return f"${path.rstrip('`')}: {text}"


# How to make a value that fits, by the rule and the type.
WAYS = {
    ("a str", "int"): "str(value)",
    **dict.fromkeys((("a str", name) for name in ("UUID", "HttpUrl", "AnyHttpUrl", "AnyUrl", "URL")), "str(value)"),
    ("an id", "list"): "one id at a time, or an Audience itself to broadcast",
    ("an id", "PushRequest"): "requests to send_each, in a list",
    ("a str", "SecretStr"): "value.get_secret_value()",
    ("a str", "bytes"): "value.decode()",
    **dict.fromkeys((("a str", name) for name in ("tuple", "Row", "Record")), "the id in it, such as row[0]"),
    ("a key", "coroutine"): "the function, not its call",
    ("a key", "tuple"): "the str in it, perhaps without a comma after it",
    ("a key", "PosixPath"): "path.read_text().strip()",
    ("an int", "timedelta"): "int(value.total_seconds())",
    ("an int", "datetime"): "int(value.timestamp())",
    **dict.fromkeys((("JSON", name) for name in ("datetime", "date", "time")), "value.isoformat()"),
    **dict.fromkeys((("JSON", name) for name in ("UUID", "Decimal", "HttpUrl", "PosixPath")), "str(value)"),
    ("JSON", "timedelta"): "value.total_seconds()",
    ("JSON", "bytes"): "value.decode()",
    **dict.fromkeys((("JSON", name) for name in ("set", "frozenset")), "list(value)"),
}


def kind_of(value: object, rule: str = "") -> str:
    """Return the type of a value for an error, with the way to one that fits the rule."""
    if value is None:
        return "None: leave it out" if rule else "None"
    if isinstance(value, type):
        return f"the class {value.__name__}: call it"
    if isinstance(value, Awaitable):
        return f"a {type(value).__name__}: await it first"
    way = WAYS.get((rule, name := type(value).__name__)) or (
        "value.model_dump()" if hasattr(value, "model_dump") else ""
    )
    return f"{name}: pass {way}" if way else name


def kind_of_id(value: object) -> str:
    """Return the type of a value that is no user id, with the way to one."""
    return kind_of(value, "an id" if ("an id", type(value).__name__) in WAYS else "a str")


_PACKAGE = str(PurePath(__file__).parents[1])


def trace_of(error: BaseException) -> str:
    """Return the class of an exception and the lines of its traceback between ours. Its text may quote an id."""
    frames = list(traceback.extract_tb(error.__traceback__))
    groups = groupby(frames, lambda frame: frame.filename.startswith(_PACKAGE))
    frames = next((list(group) for is_own, group in groups if not is_own), frames[1:])
    places = " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__


def alias(name: str, known: Iterable[str]) -> str | None:
    """Return our name for one that another library has, if it is known."""
    return next((word for word in ALIASES.get(fold(name), ()) if word in known), None)


def no_attribute(owner: object, name: str, hidden: Collection[str] = ()) -> AttributeError:
    """Return the error for an attribute that an object lacks, with the nearest one, or with all that are not hidden."""
    cls = owner if isinstance(owner, type) else type(owner)
    # ``dir`` itself asks for ``__dict__``, which an object with slots lacks.
    known = [] if name[0] == "_" else [word for word in dir(owner) if word[0] != "_"]
    near = alias(name, known) or near_word(name, known, 0.65)
    if name == "message" and isinstance(owner, BaseException):
        return AttributeError(f"{cls.__name__} has no attribute 'message': its text is str(error)", name=name)
    shown = [word for word in known if word not in hidden]
    advice = f": did you mean {near!r}?" if near else f": the names are {', '.join(shown)}" if shown else ""
    if fold(name) in ("fromdict", "fromjson", "modelvalidate"):
        use = "pass the mapping itself, whose names are checked" if "to_dict" in known else "call it with **mapping"
        advice = f": {use}"
    return AttributeError(f"{cls.__name__} has no attribute {name!r}{advice}", name=name)  # no second hint by Python


def missing_attribute(instance: object, name: str) -> NoReturn:
    """Raise AttributeError with the nearest attribute, as the ``__getattr__`` of a class."""
    if name in ("_engine", "_portal"):
        raise AttributeError(f"{type(instance).__name__}.__init__ must call super().__init__(base_url, api_key)")
    raise no_attribute(instance, name)


def refusal(text: str) -> Any:
    """Return a method that raises TypeError: for a protocol that a class does not have, and its neighbor has."""

    def refuse(*_: object) -> NoReturn:
        raise TypeError(text)

    refuse.__doc__ = text
    return refuse
