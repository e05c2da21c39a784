"""The plan: the frame's users, each once, cut into chunks and written to Parquet, in one evaluation of the frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pushsdk._audience.source import missing_column, printable
from pushsdk._core.errors import ValidationError
from pushsdk._runs.run_file.file import run_file_error
from pushsdk.spark._folder import RunFolder, uri
from pushsdk.spark._tasks import EMPTY, NULL, ChunkPartition, chunk_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["PlanCounts", "check_columns", "count", "freeze", "hashes", "schema_of"]

_IDS = frozenset({"string", "byte", "short", "integer", "long"})
# As they are; the others that can be sent are changed by ``_value``.
_VALUES = _IDS | {"boolean", "date", "timestamp", "timestamp_ntz", "array", "struct", "map"}
# ISO 8601; of a day with a zone, in UTC.
_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "true",
}


class PlanCounts(msgspec.Struct, frozen=True):
    """What a plan was found to hold when it was read back."""

    chunks: int
    users: int
    rows: int
    """Of the frame."""
    checksum: str


def check_columns(df: DataFrame, primary_key: str, fields: Sequence[str]) -> None:
    """Raises ValidationError where there is no such column, or it is of a type that can't be sent."""
    kinds = {field.name: field.dataType for field in df.schema.fields}
    for name in (primary_key, *fields):
        option = "primary_key=" if name == primary_key else "fields="
        if not isinstance(name, str) or name not in kinds:
            raise missing_column("the frame", str(name), df.columns, option=option)
        if df.columns.count(name) > 1:
            raise ValidationError(f"the frame has several columns {printable(name, 60)!r}: rename all but one")
    key = kinds[primary_key]
    if key.typeName() not in _IDS and not (key.typeName() == "decimal" and key.scale == 0):
        raise ValidationError(
            f"{printable(primary_key, 60)!r} is of type {printable(key.simpleString(), 60)}; user ids are texts or "
            "whole numbers: cast it to a string"
        )
    for name in fields:
        if kinds[name].typeName() not in _VALUES | {"decimal", "float", "double"}:
            raise ValidationError(
                f"column {printable(name, 60)!r} is of type {printable(kinds[name].simpleString(), 60)}, which "
                "JSON has no form for: leave it out, or cast it to a string"
            )


def freeze(df: DataFrame, cutter: ChunkPartition, *, primary_key: str, fields: Sequence[str]) -> None:
    """Write the plan. Of several rows with one id any one counts."""
    import pyspark.sql.functions as sf

    columns = [_named(df, primary_key).cast("string").alias("user_id")]
    wanted = [sf.count(sf.lit(1)).alias("rows")]
    if fields:
        row = sf.struct(*(_value(df, name).alias(name) for name in fields))
        columns.append(sf.to_json(row, _JSON).alias("fields"))
        wanted.append(sf.first("fields").alias("fields"))
    # The rows without an id are a group, too: so they are counted in the same evaluation.
    users = df.select(*columns).groupBy("user_id").agg(*wanted)
    chunks = users.mapInArrow(cutter, schema_of(chunk_schema(personal=bool(fields))))
    chunks.write.mode("append").parquet(uri(Path(cutter.plan)))


def count(session: SparkSession, folder: RunFolder, plan: Path, *, primary_key: str) -> PlanCounts:
    """Read back what was written. Raises ValidationError where rows have no id, RunFileError where it is not whole."""
    import pyspark.sql.functions as sf

    read = session.read.schema(schema_of(chunk_schema(personal=False))).parquet(uri(plan))
    bad = sf.when(sf.col("chunk_id").isin(NULL, EMPTY), sf.col("chunk_id"))
    found = {
        row["bad"]: row
        for row in read.groupBy(bad.alias("bad"))
        .agg(
            sf.count(sf.lit(1)).alias("chunks"),
            sf.count_distinct("chunk_id").alias("ids"),
            sf.sum(sf.size("user_ids")).alias("users"),
            sf.sum("rows").alias("rows"),
        )
        .collect()
    }
    without = [f"{found[name]['rows']:,} rows have {words}" for name, words in _NO_ID.items() if name in found]
    if without:
        raise ValidationError(
            f"{' and '.join(without)} in {printable(primary_key, 60)!r}: nothing was sent; filter them out"
        )
    good = found.get(None)
    if good is None:
        return PlanCounts(0, 0, 0, "0")
    users = read.select(sf.explode("user_ids").alias("user_id")).agg(*hashes()).collect()[0]
    if good["chunks"] != good["ids"] or good["users"] != users["users"]:
        raise run_file_error(folder.path, "its plan does not read as it was written: nothing was sent; try again")
    return PlanCounts(good["chunks"], good["users"], good["rows"], str(users["checksum"]))


_NO_ID = {NULL: "no user id (NULL)", EMPTY: "an empty user id"}


def hashes() -> list[Column]:
    """Of the column ``user_id``: how many, and the sum of their hashes, which is the same in any order."""
    import pyspark.sql.functions as sf

    hashed = sf.xxhash64("user_id").cast("decimal(38,0)")
    return [sf.count("user_id").alias("users"), sf.coalesce(sf.sum(hashed), sf.lit(0)).alias("checksum")]


def schema_of(schema: Any) -> Any:
    """An Arrow schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _named(df: DataFrame, name: str) -> Column:
    """The column with exactly this name, whatever characters are in it."""
    return df["`" + name.replace("`", "``") + "`"]


def _value(df: DataFrame, name: str) -> Column:
    """A column as it is sent along: decimals with all their digits, NaN as no value."""
    import pyspark.sql.functions as sf

    column, kind = _named(df, name), df.schema[name].dataType.typeName()
    if kind == "decimal":
        return column.cast("string")
    if kind in ("float", "double"):
        return sf.when(~sf.isnan(column), column)
    return column
