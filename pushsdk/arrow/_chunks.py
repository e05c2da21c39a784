"""Plan and outcome columns, and chunks made from plan rows: checked, encoded, with their claims."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from pushsdk._audience.source import printable
from pushsdk._core import wire
from pushsdk._core.body import encode_user_id, encode_user_ids
from pushsdk._core.damage import damage_of
from pushsdk._core.errors import ValidationError
from pushsdk._core.idempotency import KEY_BYTES, Payload, check_key, digest_of, fingerprint_of
from pushsdk._core.kinds import check
from pushsdk._core.models import MobilePush
from pushsdk._core.placeholders import fill

Personal = Literal["placeholders", "custom_fields"]

CHUNK_ID, USER_IDS, FIELDS = "chunk_id", "user_ids", "fields"
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode


def plan_schema(personal: bool) -> pa.Schema:
    """Return the plan columns, a row for each chunk: ``chunk_id``, ``user_ids`` and, if ``personal``, ``fields``.

    ``fields`` has a JSON object for each of the ``user_ids``, in their order.
    """
    texts = pa.list_(pa.field("element", pa.string(), nullable=False))
    columns = {CHUNK_ID: pa.string(), USER_IDS: texts, **({FIELDS: texts} if personal else {})}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


def outcome_schema() -> pa.Schema:
    """Return the outcome columns, a row for each user: ``user_id``, ``outcome``, ``status`` and ``reason``.

    ``outcome`` is an ``Outcome`` name, ``status`` the HTTP status or null, and ``reason`` says why a user was
    not accepted.
    """
    columns = {"user_id": pa.string(), "outcome": pa.string(), "status": pa.int32(), "reason": pa.string()}
    return pa.schema([pa.field(name, kind, nullable=name == "status") for name, kind in columns.items()])


class PreparedChunk(NamedTuple):
    """One plan row: users with one claim, sent in one request or in one request each."""

    name: str
    """The chunk's id, for errors."""
    column: pa.Array
    """The user ids, as strings."""
    users: list[str]
    payloads: tuple[Payload, ...]
    """One for all users, or one for each user."""
    key: str
    fingerprint: str

    def __repr__(self) -> str:
        return f"PreparedChunk(users={len(self.users)})"

    @property
    def is_personal(self) -> bool:
        return len(self.payloads) == len(self.users)


class ChunkEncoder:
    """The encoder for plan rows. Raises ValidationError for a message or custom fields that can't be sent."""

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
        check("personal", personal, Literal["placeholders", "custom_fields"] | None, ValidationError)
        check_key("run", run, "the same in every process that sends the plan", KEY_BYTES // 2)
        self.personal = personal
        #: The damage that ids show. Complete when the plan has ended.
        self.damages = Counter[str]()
        self._run = run
        self._base_url = base_url
        self._max_users = max_users
        self._message = wire.encode_message(message)
        self._custom_fields = None if custom_fields is None else wire.encode_custom_fields(custom_fields)
        self._unencoded = message, dict(custom_fields or {})

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PreparedChunk]:
        """Yield the chunks in the plan. Raises ValidationError that names the column and, if known, the chunk."""
        for batch in batches:
            names, users = _names(batch), _text_lists(batch, USER_IDS)
            fields = _text_lists(batch, FIELDS) if self.personal else None
            for row, name in enumerate(names):
                column = _texts(USER_IDS, name, users[row])
                yield self._chunk(name, column, None if fields is None else _texts(FIELDS, name, fields[row]))

    def _chunk(self, chunk_id: str, column: pa.Array, fields: pa.Array | None) -> PreparedChunk:
        users = column.to_pylist()
        if len(users) > self._max_users:
            problem = f"{len(users)} users, and batching.max_users is {self._max_users}: plan smaller ones"
            raise _chunk_error(USER_IDS, chunk_id, problem)
        if len(set(users)) < len(users):
            raise _chunk_error(USER_IDS, chunk_id, "an id comes more than once: plan distinct ids")
        rows = None if fields is None else _rows(chunk_id, fields, len(users))
        name, claim = printable(chunk_id, 60), claim_name(self._run, chunk_id)
        try:
            key = digest_of(claim)
        except ValidationError:
            raise _chunk_error(CHUNK_ID, chunk_id, "use at most 255 bytes of UTF-8, without NUL") from None
        try:
            payloads = self._payloads(users, rows)
        except ValidationError as error:
            raise ValidationError(f"chunk {name}: {error}") from None
        fingerprint = fingerprint_of(claim, self._base_url, payloads)
        return PreparedChunk(name, column, users, payloads, key, fingerprint)

    def _payloads(self, users: list[str], rows: list[dict[str, Any]] | None) -> tuple[Payload, ...]:
        """Return one payload for all users, or one for each user if there are ``rows``."""
        encoded = encode_user_ids(users)
        self.damages.update(damage_of(users, encoded))
        if rows is None:
            return ((encoded, self._message, self._custom_fields),)
        message, custom_fields = self._unencoded
        payloads: list[Payload] = []
        for user, row in zip(map(encode_user_id, users), rows, strict=True):
            if self.personal == "placeholders":
                payloads.append((user, wire.encode_message(fill(message, row), warn=False), self._custom_fields))
            else:
                payloads.append((user, self._message, wire.encode_custom_fields({**custom_fields, **row})))
        return tuple(payloads)


def claim_name(run: str, chunk_id: str) -> str:
    """Return the claim name for a chunk; ``digest_of`` turns the name into its key in the store."""
    return f"{run}/{chunk_id}"


def _text_lists(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column whose values are text lists."""
    column = _column(batch, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not ((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type)):
        raise ValidationError(f"column {name} is of type {printable(str(kind), 60)}: a list of strings is needed")
    return column


def _texts(name: str, chunk_id: str, value: pa.Scalar) -> pa.Array:
    """Return the texts in one ``_text_lists`` value."""
    texts = value.values
    if texts is None:
        raise _chunk_error(name, chunk_id, "it is null")
    if not len(texts):
        raise _chunk_error(name, chunk_id, "it is empty: leave a chunk without users out")
    if texts.null_count:
        raise _chunk_error(name, chunk_id, f"{texts.null_count} of {len(texts)} values are null")
    # A cast would convert the whole column, for all slices of a table, and fail beyond 2 GiB of text.
    return texts if pa.types.is_string(texts.type) else pa.array(texts.to_pylist(), pa.string())


def _names(batch: pa.RecordBatch) -> list[str]:
    column = _column(batch, CHUNK_ID)
    if not _is_text(column.type):
        raise ValidationError(f"column {CHUNK_ID} is of type {column.type}: a string is needed")
    names: list[str] = column.to_pylist()
    for row, name in enumerate(names):
        if not name:
            raise ValidationError(f"column {CHUNK_ID}: row {row} of its batch has none")
    return names


def _rows(chunk_id: str, fields: pa.Array, users: int) -> list[dict[str, Any]]:
    """Return the fields for each user, decoded."""
    if len(fields) != users:
        problem = f"values: {len(fields)}, user ids: {users}; one value for each id is needed"
        raise _chunk_error(FIELDS, chunk_id, problem)
    rows = []
    for position, text in enumerate(fields.to_pylist()):
        try:
            rows.append(_decode_fields(text))
        except (msgspec.MsgspecError, RecursionError):
            raise _chunk_error(FIELDS, chunk_id, f"the value at {position} is no JSON object") from None
    return rows


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        names = ", ".join(printable(column, 60) for column in batch.schema.names)
        raise ValidationError(f"column {name} is {'there twice' if indices else 'missing'}: the columns are {names}")
    return batch.column(indices[0])


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _chunk_error(column: str, chunk_id: str, problem: str) -> ValidationError:
    return ValidationError(f"column {column}, chunk {printable(chunk_id, 60)}: {problem}")
