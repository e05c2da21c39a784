"""Advice on a message or a campaign that can be sent but is probably a mistake.

A rule table over the nodes of a resource whose types ``values`` has checked. A problem shows paths, names and
language codes, never a message text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

import msgspec

from pushsdk._core.errors import ValidationError
from pushsdk._core.hints import near_name
from pushsdk._core.models import (
    ActionButton,
    ActionCategory,
    ActionComponent,
    CampaignRequest,
    MobilePush,
    Model,
    PushRequest,
    Schedule,
    Segment,
)
from pushsdk._core.paths import Path, show_path
from pushsdk._core.placeholders import TEXTS, malformed_placeholder
from pushsdk._core.values import plain, typed
from pushsdk._core.words import fold, kind_of, near_word


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of advice: path (``$.message.title``), rule code, and message."""

    path: str
    code: str
    message: str


class LintNode(msgspec.Struct, frozen=True):
    """An object in a resource: ``fields`` by their wire names."""

    path: Path
    model: type[Model]
    fields: Mapping[str, Any]


# Instead of a field: the node, or the node if it has a name that the model lacks.
_NODE, _UNKNOWN = None, ""

# A rule returns paths below its node or field, each with the advice.
_Found = Iterable[tuple[Path, str]]


class LintRule(msgspec.Struct, frozen=True):
    """A table row: ``check`` looks at these ``fields`` of each ``model`` node, or at the node.

    If ``is_warned``, sending warns about problems that the rule finds. Problems that other rules find may be intended.
    """

    code: str
    model: type[Model]
    check: Callable[[Any], _Found]
    fields: tuple[str | None, ...] = (_NODE,)
    is_warned: bool = True


CHILDREN: Mapping[type[Model], Mapping[str, type[Model]]] = {
    CampaignRequest: {
        "segment": Segment,
        "schedule": Schedule,
        "message": MobilePush,
    },
    PushRequest: {"message": MobilePush},
    MobilePush: {
        "androidActionButtons": ActionButton,
        "actionCategory": ActionCategory,
    },
    ActionCategory: {"actionComponents": ActionComponent},
}

# Each enumerated field's only value in the interface document.
SHOWN: Mapping[tuple[type[Model], str], str] = {
    (Schedule, "type"): "START_NOW",
    (MobilePush, "type"): "MOBILE_PUSH",
    (MobilePush, "action"): "DEFAULT",
    (MobilePush, "priority"): "NORMAL",
    (MobilePush, "mediaType"): "IMAGE",
    (MobilePush, "interruptionLevel"): "PASSIVE",
    (MobilePush, "relevanceScore"): "SCORE_MAX",
    (ActionButton, "clickAction"): "DEEP_LINKING",
    (ActionComponent, "clickAction"): "DEEP_LINKING",
    (ActionCategory, "type"): "PREDEFINED_CATEGORY",
}

# Fields for one platform, by name or by a note in the interface document.
PLATFORM = {
    "androidActionUrl": "androidEnabled",
    "androidChannel": "androidEnabled",
    "androidActionButtons": "androidEnabled",
    "iosActionUrl": "iosEnabled",
    "interruptionLevel": "iosEnabled",
    "relevanceScore": "iosEnabled",
}


# Bytes of one push: "maximum payload size of 4 KB" (Apple, "Generating a remote notification"), "4096 bytes" (Google,
# "About FCM messages").
MAX_PAYLOAD = 4096

_MESSAGE_FIELDS = frozenset(MobilePush.__struct_encode_fields__)
_encode = msgspec.json.Encoder().encode


def lint(subject: Model | Mapping[str, Any]) -> list[Problem]:
    """Return advice on a message, a campaign or any other model, or a mapping with the same shape.

    The service may still reject a message without problems: most of its rules are undocumented. Raises ValidationError
    for anything else, such as a file name.
    """
    if not isinstance(subject, (Model, Mapping)):
        raise ValidationError(f"lint takes a message, a campaign or a mapping; got {kind_of(subject)}")
    model = type(subject) if isinstance(subject, Model) else _model_of(subject)
    # Same path as in a ValidationError: a message alone is shown as part of its request.
    path = ("message",) if issubclass(model, MobilePush) else ()
    try:
        typed(value := plain(subject, path), model, path)
    except ValidationError as error:
        where, _, text = str(error).partition(": ")
        return [Problem(path=where, code="wrong-type", message=text)]
    return problems(value, model, path)


def problems(value: object, model: type[Model], path: Path, *, only_warned: bool = False) -> list[Problem]:
    """Return what the rules, or only those that are warned of, find in a plain value of this class at this path."""
    found: list[Problem] = []
    for node in nodes(value, model, path):
        for code, name, check in _checks(node.model, tuple(node.fields), only_warned):
            for below, advice in check(node.fields[name] if name else node):
                place = (*node.path, name, *below) if name else (*node.path, *below)
                found.append(Problem(path=show_path(place), code=code, message=advice))
    return found


_Check = tuple[str, str | None, Callable[[Any], _Found]]


@lru_cache(maxsize=1024)  # a run's messages have few name sets
def _checks(model: type[Model], names: tuple[str, ...], only_warned: bool) -> list[_Check]:
    """Return the code, the field and the check for each rule that looks at an object with these names."""
    rules = [rule for rule in RULES if issubclass(model, rule.model) and rule.is_warned >= only_warned]
    known = {*model.__struct_encode_fields__}
    looked_at: set[str | None] = {_NODE, *known.intersection(names)}
    if not known.issuperset(names):
        looked_at.add(_UNKNOWN)
    return [(rule.code, name, rule.check) for rule in rules for name in rule.fields if name in looked_at]


def _model_of(subject: Mapping[Any, Any]) -> type[Model]:
    names = {fold(name) for name in subject if isinstance(name, str)}
    candidates: tuple[type[Model], ...] = (MobilePush, CampaignRequest, PushRequest)
    return max(candidates, key=lambda model: len(names.intersection(map(fold, model.__struct_encode_fields__))))


def nodes(value: object, model: type[Model], path: Path = ()) -> list[LintNode]:
    """Return the object and its documented descendants. The value is JSON, with any types."""
    if not isinstance(value, dict):
        return []
    found = [LintNode(path, model, value)]
    for name, child in _children(model).items():
        below = value.get(name)
        if isinstance(below, list):
            for index, item in enumerate(below):
                found += nodes(item, child, (*path, name, index))
        else:
            found += nodes(below, child, (*path, name))
    return found


@cache
def _children(model: type[Model]) -> Mapping[str, type[Model]]:
    return next((CHILDREN[kind] for kind in model.__mro__ if kind in CHILDREN), {})


_is_code = partial(re.fullmatch, r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{1,8})*")
_is_absolute = partial(re.match, r"[A-Za-z][A-Za-z0-9+.-]*:|\{\{")


def _listed(languages: Iterable[str]) -> str:
    return ", ".join(sorted(code if _is_code(code) else "..." for code in languages))


# Where other resources' fields belong.
_ELSEWHERE = {
    (MobilePush, "customFields"): "it belongs beside the message: send(..., custom_fields=...)",
    (CampaignRequest, "userIds"): "a campaign has no users: its segment chooses them",
    (CampaignRequest, "customFields"): "a campaign has none",
}


# Each message in a run may be a new one, so the checks are fast when they find nothing.


def _near_name(node: LintNode) -> _Found:
    known = node.model.__struct_encode_fields__
    for name in node.fields:
        near = near_name(name, known)
        advice = _ELSEWHERE.get((node.model, name)) or (near and f"did you mean {near}?")
        if advice and name not in known:
            yield (name,), f"unknown field, {advice}"


def _unknown_field(node: LintNode) -> _Found:
    near = {path for path, _ in _near_name(node)}
    for name in node.fields:
        if name not in node.model.__struct_encode_fields__ and (name,) not in near:
            yield (name,), "unknown field, which phones may ignore; for the fields see: pushsdk docs sending"


def _near(shown: str) -> Callable[[str], _Found]:
    """Return the check that a value is not a misspelled ``shown``."""

    def check(value: str) -> _Found:
        is_near = value != shown and near_word(value, (shown,))
        return [((), f"unknown value, did you mean {shown}?")] if is_near else ()

    return check


def _not_a_code(texts: Mapping[str, str]) -> _Found:
    for language in texts:
        if not _is_code(language):
            yield (language,), "a language is a code, such as en or pt-BR"


def _relative(url: str) -> _Found:
    return () if _is_absolute(url) else [((), "the URL is relative: a device has nothing to resolve it against")]


def _negative(number: int) -> _Found:
    return [((), "the number is negative")] if number < 0 else ()


def _no_platform(node: LintNode) -> _Found:
    if node.fields.get("iosEnabled") or node.fields.get("androidEnabled"):
        return ()
    return [((), "neither iosEnabled nor androidEnabled is true, so it may reach no phone: set one")]


def _platform_off(node: LintNode) -> _Found:
    for name, switch in PLATFORM.items():
        if node.fields.get(name) and not node.fields.get(switch):
            yield (name,), f"set, although {switch} is not true"


def _no_text(node: LintNode) -> _Found:
    for name in ("title", "body"):
        for text in node.fields.get(name, {}).values():
            if text.strip():
                return ()
    # A silent push wakes the app and shows nothing.
    return () if node.fields.get("contentAvailable") else [((), "title and body are both empty")]


def _languages_differ(node: LintNode) -> _Found:
    title, body = (node.fields.get(name, {}).keys() for name in ("title", "body"))
    if title and body and title != body:
        yield ("body",), f"title and body are not in the same languages: only one is in {_listed(title ^ body)}"


def _subtitle_language(node: LintNode) -> _Found:
    if extra := node.fields.get("subtitle", {}).keys() - node.fields.get("title", {}).keys():
        yield ("subtitle",), f"the subtitle is in languages that the title is not in: {_listed(extra)}"


def _malformed_placeholder(texts: Mapping[str, str]) -> _Found:
    for language, text in texts.items():
        if ("{" in text or "}" in text) and (problem := malformed_placeholder(text)):
            yield (language,), problem


def _too_large(node: LintNode) -> _Found:
    """Find the languages in which a phone would get more than one push can hold."""
    fields = node.fields
    if len(_encode(fields)) <= MAX_PAYLOAD:
        return
    languages = {language for name in TEXTS for language in fields.get(name, {})} or {""}
    sizes = {language: _payload(fields, language) for language in languages}
    if large := {language for language, size in sizes.items() if size > MAX_PAYLOAD}:
        where = f" in {_listed(large)}" if any(large) else ""
        advice = (
            f"the push{where} has about {max(sizes.values()):,} bytes, and Apple and Google deliver at most "
            f"{MAX_PAYLOAD:,}: shorten the text, or fetch what is in keyVals from your server"
        )
        yield (), advice


def _payload(fields: Mapping[str, Any], language: str) -> int:
    """Return the bytes of the documented fields that a phone gets at least, of the platform with more."""
    texts = {name: fields[name].get(language) for name in TEXTS if name in fields}
    sent = {name: fields[name] for name in _MESSAGE_FIELDS & fields.keys()} | texts
    received = [
        {name: value for name, value in sent.items() if PLATFORM.get(name, switch) == switch}
        for switch in ("iosEnabled", "androidEnabled")
        if fields.get(switch, True)
    ]
    return max(map(len, map(_encode, received)), default=0)


def _missing(name: str, advice: str) -> Callable[[LintNode], _Found]:
    """Return the check that a field is set."""
    return lambda node: () if node.fields.get(name) else [((), f"no {name}: {advice}")]


_URLS = ("url", "androidActionUrl", "iosActionUrl")  # the app may resolve a relative one
_MEDIA = ("bigImageUrl", "largeIconUrl", "richMediaUrl")

RULES: tuple[LintRule, ...] = (
    LintRule("near-name", Model, _near_name, (_UNKNOWN,)),
    LintRule("unknown-field", Model, _unknown_field, (_UNKNOWN,), is_warned=False),
    *(LintRule("near-value", model, _near(shown), (name,)) for (model, name), shown in SHOWN.items()),
    LintRule("relative-url", Model, _relative, _URLS, is_warned=False),
    LintRule("relative-image", MobilePush, _relative, _MEDIA),
    LintRule("negative-number", Model, _negative, ("ttl", "badgeCount", "startTs")),
    LintRule("no-platform", MobilePush, _no_platform),
    LintRule("platform-off", MobilePush, _platform_off, is_warned=False),
    LintRule("language-code", MobilePush, _not_a_code, TEXTS),
    LintRule("no-text", MobilePush, _no_text),
    LintRule("too-large", MobilePush, _too_large),
    LintRule("languages-differ", MobilePush, _languages_differ, is_warned=False),
    LintRule("subtitle-language", MobilePush, _subtitle_language, is_warned=False),
    LintRule("malformed-placeholder", MobilePush, _malformed_placeholder, TEXTS),
    LintRule("no-label", ActionButton, _missing("label", "the button has no text"), is_warned=False),
    LintRule(
        "no-external-id",
        CampaignRequest,
        _missing("externalId", "if UNKNOWN, it can't be looked up"),
        is_warned=False,
    ),
    LintRule("no-segment", CampaignRequest, _missing("segment", "the campaign has no audience")),
    LintRule("no-message", CampaignRequest, _missing("message", "the campaign has nothing to send")),
)


@cache
def _plain_message() -> Callable[[bytes], re.Match[bytes] | None]:
    """Return the match of a message's JSON if certainly nothing in it causes a warning.

    It is known to be valid, with its fields in order. So few choices are left, each of which takes time.
    """
    checked = {name for rule in RULES if rule.is_warned for name in rule.fields if name}
    unchecked = "|".join(_MESSAGE_FIELDS - checked - CHILDREN[MobilePush].keys())
    shown = "|".join(f'"{name}":"{value}"' for (model, name), value in SHOWN.items() if model is MobilePush)
    text = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
    code = r'"[A-Za-z]{2,3}+(?:"|(?:[_-][A-Za-z0-9]{1,8})++"):"'
    # A letter, or a sign that is not white space: one is enough for all texts. Then no braces.
    first, rest = r"(?:[!#-Z^-z|~\xc3-\xe0\xe4-\xf4]|\xe3[\x81-\xbf])", r"[ !#-\[\]-z|~-\xff]*+"
    pattern = (
        r'\{"type":"MOBILE_PUSH","(?:iosEnabled":true|androidEnabled":true|iosEnabled":false,"androidEnabled":true)'
        rf',"(?:title|body|androidEnabled":(?:true|false),"(?:title|body))":\{{{code}{first}{rest}'
        rf'(?:(?:\\.|",{code}|"\}},"(?:subtitle|body)":\{{{code}){rest})*+"\}}'
        rf'(?:,(?:"(?:{unchecked})":(?:true|false|{text}|\{{(?:,?{text}:{text})*+\}})'
        rf'|"(?:{"|".join(_MEDIA)})":(?="[A-Za-z][A-Za-z0-9+.-]*:){text}|"(?:ttl|badgeCount)":\d++|{shown}))*+\}}'
    )
    return re.compile(pattern.encode("latin-1"), re.DOTALL).fullmatch


def is_plain(message: bytes) -> bool:
    """Return True if a ``MobilePush``'s JSON certainly causes no warning, twenty times as fast as the rules do."""
    return len(message) <= MAX_PAYLOAD and _plain_message()(message) is not None
