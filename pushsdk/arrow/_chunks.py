"""Plan and outcome columns, and chunks made from plan rows: checked, encoded, with their claims."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from pushsdk._audience.source import printable
from pushsdk._core import wire
from pushsdk._core.body import encode_user_id, encode_user_ids
from pushsdk._core.damage import damage_of, is_filled
from pushsdk._core.errors import ValidationError
from pushsdk._core.idempotency import KEY_BYTES, Payload, digest_of, encoded_key, fingerprint_of
from pushsdk._core.kinds import Rule, check
from pushsdk._core.models import MobilePush
from pushsdk._core.outcome import Guarded, GuardedValue
from pushsdk._core.placeholders import fill
from pushsdk._core.words import rule_and_path

Personal = Literal["placeholders", "custom_fields"]

CHUNK_ID, USER_IDS, FIELDS = "chunk_id", "user_ids", "fields"
_RunName = Annotated[str, Rule("a name without a placeholder, for example f'daily-{date.today()}'", is_filled)]
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


class PlanRow(Guarded, msgspec.Struct):
    """One plan row."""

    chunk_id: Annotated[str, msgspec.Meta(min_length=1)]
    user_ids: Annotated[list[str], msgspec.Meta(min_length=1)]
    fields: list[str] = []


class PreparedChunk(GuardedValue, frozen=True):
    """One plan row: users with one claim, sent in one request or in one request each."""

    name: str
    """The chunk's id, for errors."""
    users: list[str]
    payloads: tuple[Payload, ...]
    """One for all users, or one for each user."""
    key: str
    fingerprint: str

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
        check("personal", personal, Personal | None, ValidationError)
        encoded_key("run", run, "the same in every process that sends the plan", KEY_BYTES // 2)
        check("run", run, _RunName, ValidationError)
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
        columns = plan_schema(self.personal is not None).names
        for batch in batches:
            yield from map(self._chunk, _rows(batch, columns))

    def _chunk(self, row: PlanRow) -> PreparedChunk:
        chunk_id, users = row.chunk_id, row.user_ids
        if len(users) > self._max_users:
            problem = f"{len(users)} users, and batching.max_users is {self._max_users}: plan smaller ones"
            raise _chunk_error(USER_IDS, chunk_id, problem)
        if len(set(users)) < len(users):
            raise _chunk_error(USER_IDS, chunk_id, "an id comes more than once: plan distinct ids")
        fields = _decoded(row) if self.personal else None
        name, claim = printable(chunk_id, 60), claim_name(self._run, chunk_id)
        try:
            key = digest_of(claim)
        except ValidationError:
            raise _chunk_error(CHUNK_ID, chunk_id, "use at most 255 bytes of UTF-8, without NUL") from None
        try:
            payloads = self._payloads(users, fields)
        except ValidationError as error:
            raise ValidationError(f"chunk {name}: {error}") from None
        fingerprint = fingerprint_of(claim, self._base_url, payloads)
        return PreparedChunk(name, users, payloads, key, fingerprint)

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


def _rows(batch: pa.RecordBatch, columns: list[str]) -> Iterator[PlanRow]:
    try:
        plan = batch.select(columns)
    except KeyError:
        names = ", ".join(printable(name, 60) for name in batch.schema.names)
        raise ValidationError(f"a plan has each column once: {', '.join(columns)}; the columns are {names}") from None
    for number in range(plan.num_rows):
        [row] = plan.slice(number, 1).to_pylist()
        try:
            yield msgspec.convert(row, PlanRow)
        except msgspec.ValidationError as error:
            rule, path = rule_and_path(error)
            raise _chunk_error(path[1:], str(row[CHUNK_ID]), rule) from None


def _decoded(row: PlanRow) -> list[dict[str, Any]]:
    """Return the fields for each user."""
    if len(row.fields) != len(row.user_ids):
        problem = f"values: {len(row.fields)}, user ids: {len(row.user_ids)}; one value for each id is needed"
        raise _chunk_error(FIELDS, row.chunk_id, problem)
    try:
        return list(map(_decode_fields, row.fields))
    except (msgspec.MsgspecError, RecursionError):
        raise _chunk_error(FIELDS, row.chunk_id, "a value is no JSON object") from None


def _chunk_error(column: str, chunk_id: str, problem: str) -> ValidationError:
    return ValidationError(f"column {column}, chunk {printable(chunk_id, 60)}: {problem}")
