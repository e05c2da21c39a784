"""Advice on a message or a campaign that can be sent but is probably a mistake.

A table of rules over the nodes of a resource; ``wire`` rejects what can't be sent. A problem shows
paths, names and language codes, never a text of the message.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pushsdk._core import models
from pushsdk._core.errors import ValidationError
from pushsdk._core.models import UNSET, Model, Path, show_path
from pushsdk._core.placeholders import TEXTS, malformed_placeholder
from pushsdk._core.words import alias, fold, kind_of, near_word


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of advice: path (``$.message.title``), code of the rule, and message."""

    path: str
    code: str
    message: str


class LintNode(msgspec.Struct, frozen=True):
    """An object of a resource: ``fields`` by their names on the wire, without the unset ones."""

    path: Path
    model: type[Model]
    fields: Mapping[str, Any]


# A rule yields the path below its node, and the advice.
_Found = Iterator[tuple[Path, str]]


class LintRule(msgspec.Struct, frozen=True):
    """A row of the table: ``check`` looks at every node of the class ``model``."""

    code: str
    model: type[Model]
    check: Callable[[LintNode], _Found]


CHILDREN: Mapping[type[Model], Mapping[str, type[Model]]] = {
    models.CampaignRequest: {
        "segment": models.Segment,
        "schedule": models.Schedule,
        "message": models.MobilePush,
    },
    models.PushRequest: {"message": models.MobilePush},
    models.MobilePush: {
        "androidActionButtons": models.ActionButton,
        "actionCategory": models.ActionCategory,
    },
    models.ActionCategory: {"actionComponents": models.ActionComponent},
}

# The only value of each enumerated field in the interface document.
SHOWN: Mapping[tuple[type[Model], str], str] = {
    (models.Schedule, "type"): "START_NOW",
    (models.MobilePush, "type"): "MOBILE_PUSH",
    (models.MobilePush, "action"): "DEFAULT",
    (models.MobilePush, "priority"): "NORMAL",
    (models.MobilePush, "mediaType"): "IMAGE",
    (models.MobilePush, "interruptionLevel"): "PASSIVE",
    (models.MobilePush, "relevanceScore"): "SCORE_MAX",
    (models.ActionButton, "clickAction"): "DEEP_LINKING",
    (models.ActionComponent, "clickAction"): "DEEP_LINKING",
    (models.ActionCategory, "type"): "PREDEFINED_CATEGORY",
}

# Fields of one platform, by name or by a note in the interface document.
PLATFORM: Mapping[str, str] = {
    "androidActionUrl": "androidEnabled",
    "androidChannel": "androidEnabled",
    "androidActionButtons": "androidEnabled",
    "iosActionUrl": "iosEnabled",
    "interruptionLevel": "iosEnabled",
    "relevanceScore": "iosEnabled",
}


def lint(subject: Model | Mapping[str, Any]) -> list[Problem]:
    """Return advice on a message, a campaign or any other model, or a mapping of the same shape.

    The service may still reject a message without problems: most of its rules are undocumented. Raises ValidationError
    for anything else, such as the name of a file.
    """
    if not isinstance(subject, (Model, Mapping)):
        raise ValidationError(f"lint takes a message, a campaign or a mapping; got {kind_of(subject)}")
    model = _model_of(subject)
    # Same path as in a ValidationError: a message alone is shown as part of its request.
    path = ("message",) if issubclass(model, models.MobilePush) else ()
    try:
        models.typed(_fields(subject), model, path)
    except ValidationError as error:
        where, _, text = str(error).partition(": ")
        return [Problem(path=where, code="wrong-type", message=text)]
    return list(problems(subject, model, path, RULES))


def problems(subject: object, model: type[Model], path: Path, rules: Sequence[LintRule]) -> Iterator[Problem]:
    """Yield what these rules find in a resource of this class, which is at this path of a request."""
    for node in nodes(subject, model, path):
        for rule in rules:
            if issubclass(node.model, rule.model):
                for below, advice in rule.check(node):
                    yield Problem(path=show_path((*node.path, *below)), code=rule.code, message=advice)


def _model_of(subject: object) -> type[Model]:
    if isinstance(subject, Model):
        return type(subject)
    names = {fold(name) for name in _fields(subject)}
    candidates: tuple[type[Model], ...] = (models.MobilePush, models.CampaignRequest, models.PushRequest)
    return max(candidates, key=lambda model: len(names.intersection(map(fold, model.__struct_encode_fields__))))


def nodes(subject: object, model: type[Model], path: Path = ()) -> Iterator[LintNode]:
    """Yield the object and its documented descendants."""
    # CHILDREN bounds the depth: a list in the subject may contain the subject itself.
    node = LintNode(path, model, _fields(subject))
    yield node
    children = next((CHILDREN[kind] for kind in model.__mro__ if kind in CHILDREN), {})
    for name, child in children.items():
        value = node.fields.get(name)
        if isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                yield from nodes(item, child, (*path, name, index))
        elif isinstance(value, (Model, Mapping)):
            yield from nodes(value, child, (*path, name))


def _fields(subject: object) -> dict[str, Any]:
    if isinstance(subject, Model):
        pairs = zip(subject.__struct_encode_fields__, subject.__struct_fields__, strict=True)
        return {wire: value for wire, name in pairs if (value := getattr(subject, name)) is not UNSET}
    if isinstance(subject, Mapping):
        return {name: value for name, value in subject.items() if isinstance(name, str) and value is not UNSET}
    return {}


def _filled(value: object) -> bool:
    return isinstance(value, (str, list, tuple)) and len(value) > 0


def _languages(node: LintNode, name: str) -> frozenset[str]:
    return frozenset(_fields(node.fields.get(name)))


def listed(languages: Iterable[str]) -> str:
    codes = [code if re.fullmatch(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]{1,8})*", code) else "..." for code in languages]
    return ", ".join(sorted(codes))


# Where fields of other resources, and of other services, belong.
_ELSEWHERE = {
    (models.MobilePush, "customFields"): "it belongs beside the message: send(..., custom_fields=...)",
    (models.MobilePush, "notification"): "its title and body are fields of the message, by language",
    (models.MobilePush, "aps"): "its alert is the title and body of the message, by language",
    (models.CampaignRequest, "userIds"): "a campaign has no users: its segment chooses them",
    (models.CampaignRequest, "customFields"): "a campaign has none",
}


def _near_name(node: LintNode) -> _Found:
    for name in node.fields:
        if advice := _advice(node.model, name):
            yield (name,), f"unknown field{advice}"


def _advice(model: type[Model], name: str) -> str:
    """Return what an unknown field may be meant for; "" if it is known, or unlike any."""
    names = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
    if name in names.values():
        return ""
    near = near_word(name, names.values()) or names.get(alias(name, names) or "")
    elsewhere = next(
        (f", {text}" for (kind, own), text in _ELSEWHERE.items() if own == name and issubclass(model, kind)), ""
    )
    return elsewhere or (f", did you mean {near}?" if near else "")


def _near_value(node: LintNode) -> _Found:
    for (model, name), shown in SHOWN.items():
        value = node.fields.get(name)
        if issubclass(node.model, model) and isinstance(value, str) and value != shown and near_word(value, (shown,)):
            yield (name,), f"unknown value, did you mean {shown}?"


def _not_a_code(node: LintNode) -> _Found:
    for name in TEXTS:
        for language in _fields(node.fields.get(name)):
            if listed((language,)) == "...":
                yield (name, language), "a language is a code, such as en or pt-BR"


def _relative(names: str) -> Callable[[LintNode], _Found]:
    """Return the check that the URLs in fields whose names match are absolute."""

    matches = re.compile(names, re.IGNORECASE).search

    def check(node: LintNode) -> _Found:
        for name in filter(matches, node.model.__struct_encode_fields__):
            value = node.fields.get(name)
            if isinstance(value, str) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|\{\{", value):
                yield (name,), "the URL is relative: a device has nothing to resolve it against"

    return check


def _negative(node: LintNode) -> _Found:
    for name in ("ttl", "badgeCount", "startTs"):
        value = node.fields.get(name)
        if isinstance(value, int) and value < 0:
            yield (name,), "the number is negative"


def _no_platform(node: LintNode) -> _Found:
    if node.fields.get("iosEnabled") is not True and node.fields.get("androidEnabled") is not True:
        yield (), "neither iosEnabled nor androidEnabled is true, so it may reach no phone: set one"


def _platform_off(node: LintNode) -> _Found:
    for name, switch in PLATFORM.items():
        if _filled(node.fields.get(name)) and node.fields.get(switch) is not True:
            yield (name,), f"set, although {switch} is not true"


def _no_text(node: LintNode) -> _Found:
    texts = [*_fields(node.fields.get("title")).values(), *_fields(node.fields.get("body")).values()]
    # A silent push wakes the app and shows nothing.
    silent = node.fields.get("contentAvailable") is True
    if not silent and not any(isinstance(text, str) and text.strip() for text in texts):
        yield (), "title and body are both empty"


def _languages_differ(node: LintNode) -> _Found:
    title, body = _languages(node, "title"), _languages(node, "body")
    if title and body and title != body:
        yield ("body",), f"title and body are not in the same languages: only one is in {listed(title ^ body)}"


def _subtitle_language(node: LintNode) -> _Found:
    if extra := _languages(node, "subtitle") - _languages(node, "title"):
        yield ("subtitle",), f"the subtitle is in languages that the title is not in: {listed(extra)}"


def _malformed_placeholder(node: LintNode) -> _Found:
    for name in TEXTS:
        for language, text in _fields(node.fields.get(name)).items():
            if isinstance(text, str) and (problem := malformed_placeholder(text)):
                yield (name, language), problem


def _missing(name: str, advice: str) -> Callable[[LintNode], _Found]:
    """Return the check that a field is set."""
    return lambda node: iter([] if node.fields.get(name) not in (None, "", {}) else [((), f"no {name}: {advice}")])


RULES: tuple[LintRule, ...] = (
    LintRule("near-name", Model, _near_name),
    LintRule("near-value", Model, _near_value),
    LintRule("relative-url", Model, _relative("(action|^)url$")),  # the app may resolve it
    LintRule("relative-image", models.MobilePush, _relative("(image|icon|media)url$")),
    LintRule("negative-number", Model, _negative),
    LintRule("no-platform", models.MobilePush, _no_platform),
    LintRule("platform-off", models.MobilePush, _platform_off),
    LintRule("language-code", models.MobilePush, _not_a_code),
    LintRule("no-text", models.MobilePush, _no_text),
    LintRule("languages-differ", models.MobilePush, _languages_differ),
    LintRule("subtitle-language", models.MobilePush, _subtitle_language),
    LintRule("malformed-placeholder", models.MobilePush, _malformed_placeholder),
    LintRule("no-label", models.ActionButton, _missing("label", "the button has no text")),
    LintRule("no-external-id", models.CampaignRequest, _missing("externalId", "if UNKNOWN, it can't be looked up")),
    LintRule("no-segment", models.CampaignRequest, _missing("segment", "the campaign has no audience")),
    LintRule("no-message", models.CampaignRequest, _missing("message", "the campaign has nothing to send")),
)
