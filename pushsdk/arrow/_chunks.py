"""From the rows of a plan to chunks: checked, encoded, and each with the key and the fingerprint of its claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from pushsdk._audience.source import printable
from pushsdk._core import wire
from pushsdk._core.errors import ValidationError
from pushsdk._core.idempotency import KEY_BYTES, Payload, digest_of, fingerprint_of
from pushsdk._core.models import MobilePush
from pushsdk._core.placeholders import fill
from pushsdk.arrow._schemas import CHUNK_ID, FIELDS, USER_IDS

__all__ = ["ChunkEncoder", "Personal", "PreparedChunk", "claim_key"]

Personal = Literal["placeholders", "custom_fields"]

_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode


class PreparedChunk(NamedTuple):
    """One row of the plan: what is claimed as one, in one request or in one for each user."""

    name: str
    """As an error shows it."""
    column: pa.Array
    """The user ids, as texts."""
    users: list[str]
    payloads: tuple[Payload, ...]
    """One for all, or one for each user."""
    key: str
    fingerprint: str

    def __repr__(self) -> str:
        return f"PreparedChunk(users={len(self.users)})"

    @property
    def is_personal(self) -> bool:
        """Whether each user has a request of its own."""
        return len(self.payloads) == len(self.users)


class ChunkEncoder:
    """How a chunk is made of a row. Raises ValidationError for a message or custom fields that can't be sent."""

    def __init__(
        self,
        message: MobilePush | Mapping[str, Any],
        custom_fields: Mapping[str, Any] | None,
        personal: Personal | None,
        *,
        run: str,
        base_url: str,
        max_users: int,
    ) -> None:
        if personal not in (None, "placeholders", "custom_fields"):
            raise ValidationError('personal is "placeholders", "custom_fields" or None')
        _check_run(run)
        self.personal = personal
        self._run = run
        self._base_url = base_url
        self._max_users = max_users
        self._message = wire.encode_message(message)
        self._custom_fields = None if custom_fields is None else wire.encode_custom_fields(custom_fields)
        self._base = dict(custom_fields or {})
        self._original = message

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PreparedChunk]:
        """The chunks of the plan. Raises ValidationError that names the column, and the chunk where it is about one."""
        for batch in batches:
            names, users = _names(batch), _lists(batch, USER_IDS)
            fields = _lists(batch, FIELDS) if self.personal else None
            for row, name in enumerate(names):
                column = users(row, name)
                yield self._chunk(name, column, None if fields is None else fields(row, name))

    def _chunk(self, chunk_id: str, column: pa.Array, fields: pa.Array | None) -> PreparedChunk:
        users = column.to_pylist()
        if len(users) > self._max_users:
            raise _bad(
                USER_IDS,
                chunk_id,
                f"{len(users)} users, and batching.max_users is {self._max_users}: plan smaller ones",
            )
        if len(set(users)) < len(users):
            raise _bad(USER_IDS, chunk_id, "an id comes more than once: plan distinct ids")
        rows = None if fields is None else self._rows(chunk_id, fields, len(users))
        try:
            digest = claim_key(self._run, chunk_id)
        except ValidationError:
            raise _bad(CHUNK_ID, chunk_id, "use at most 255 bytes of UTF-8, without NUL") from None
        try:
            payloads = self._payloads(users, rows)
        except ValidationError as error:
            raise ValidationError(f"chunk {printable(chunk_id, 60)}: {error}") from None
        fingerprint = fingerprint_of(_key(self._run, chunk_id), self._base_url, payloads)
        return PreparedChunk(printable(chunk_id, 60), column, users, payloads, digest, fingerprint)

    def _rows(self, chunk_id: str, fields: pa.Array, count: int) -> list[dict[str, Any]]:
        if len(fields) != count:
            raise _bad(FIELDS, chunk_id, f"values: {len(fields)}, user ids: {count}; one value for each id is needed")
        rows = []
        for place, text in enumerate(fields.to_pylist()):
            try:
                rows.append(_decode_fields(text))
            except (msgspec.MsgspecError, RecursionError):
                raise _bad(FIELDS, chunk_id, f"the value at {place} is no JSON object") from None
        return rows

    def _payloads(self, users: list[str], rows: list[dict[str, Any]] | None) -> tuple[Payload, ...]:
        """One for all, or one for each."""
        if rows is None:
            return ((wire.encode_user_ids(users)[1:-1], self._message, self._custom_fields),)
        each = zip(map(wire.encode_user_id, users), rows, strict=True)
        if self.personal == "placeholders":
            filled = ((user, fill(self._original, row)) for user, row in each)
            return tuple([(user, wire.encode_message(message), self._custom_fields) for user, message in filled])
        base, message = self._base, self._message
        return tuple([(user, message, wire.encode_custom_fields({**base, **row})) for user, row in each])


def claim_key(run: str, chunk_id: str) -> str:
    """What a claim store knows a chunk by. Raises ValidationError."""
    return digest_of(_key(run, chunk_id))


def _key(run: str, chunk_id: str) -> str:
    return f"{run}/{chunk_id}"


class _Lists:
    """A column of lists of texts."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self._name = name
        self._values = column.values
        self._offsets = column.offsets.to_pylist()
        self._is_there = column.is_valid().to_pylist()

    def __call__(self, row: int, chunk_id: str) -> pa.Array:
        """Those of a row, as strings."""
        if not self._is_there[row]:
            raise _bad(self._name, chunk_id, "it is null")
        start, stop = self._offsets[row], self._offsets[row + 1]
        if start == stop:
            raise _bad(self._name, chunk_id, "it is empty: leave a chunk without users out")
        values = self._values.slice(start, stop - start)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.type != pa.string():
            values = values.cast(pa.string())
        if values.null_count:
            raise _bad(self._name, chunk_id, f"{values.null_count} of {len(values)} values are null")
        return values


def _check_run(run: object) -> None:
    if not isinstance(run, str) or not run:
        raise ValidationError("run is a str that is not empty: it names the run, whoever takes its plan up")
    try:
        data = run.encode()
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise ValidationError("run holds a NUL or half a surrogate pair: use plain text")
    if len(data) > KEY_BYTES // 2:
        raise ValidationError(f"run is longer than {KEY_BYTES // 2} bytes of UTF-8")


def _names(batch: pa.RecordBatch) -> list[str]:
    column = _column(batch, CHUNK_ID)
    if not _is_text(column.type):
        raise ValidationError(f"column {CHUNK_ID} is of type {column.type}: a string is needed")
    names: list[str] = column.to_pylist()
    for row, name in enumerate(names):
        if not name:
            raise ValidationError(f"column {CHUNK_ID}: row {row} of its batch has none")
    return names


def _lists(batch: pa.RecordBatch, name: str) -> _Lists:
    column = _column(batch, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not ((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type)):
        raise ValidationError(f"column {name} is of type {printable(str(kind), 60)}: a list of strings is needed")
    return _Lists(name, column)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        told = ", ".join(printable(each, 60) for each in batch.schema.names)
        raise ValidationError(f"column {name} is {'there twice' if places else 'missing'}: the columns are {told}")
    return batch.column(places[0])


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _bad(column: str, chunk_id: str, text: str) -> ValidationError:
    return ValidationError(f"column {column}, chunk {printable(chunk_id, 60)}: {text}")
