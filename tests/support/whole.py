"""An example of a model in which every field has a value."""

from msgspec import inspect


def whole(model, text, **given):
    """Return a request or a part of it as on the wire. Its texts are ``text``, other values may be given by name."""

    def value(kind):
        match kind:
            case inspect.StructType(fields=fields):
                return {field.encode_name: given.get(field.encode_name, value(field.type)) for field in fields}
            case inspect.ListType(item_type=item):
                return [value(item)]
            case inspect.DictType():
                return {"en": text}
            case inspect.StrType():
                return text
        return 1 if isinstance(kind, inspect.IntType) else True

    return value(inspect.type_info(model))
