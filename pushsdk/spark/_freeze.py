"""The plan: the distinct users of the frame, cut into chunks and written to Parquet, in one evaluation of the frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pushsdk._audience.source import missing_column, printable
from pushsdk._core.errors import ValidationError
from pushsdk._runs.run_file.file import run_file_error
from pushsdk.spark._folder import RunFolder, uri
from pushsdk.spark._tasks import EMPTY, NULL, ChunkPartition, chunk_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_IDS = frozenset({"string", "byte", "short", "integer", "long"})
# Types whose values are sent unchanged; ``_value`` converts the others.
_VALUES = _IDS | {"boolean", "date", "timestamp", "timestamp_ntz", "array", "struct", "map"}
# ISO 8601; times with a zone are in UTC.
_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "true",
}


def check_columns(df: DataFrame, primary_key: str, fields: Sequence[str]) -> None:
    """Raise ValidationError if a column is missing, there twice, or of a type that can't be sent."""
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


def freeze(df: DataFrame, partition: ChunkPartition, *, primary_key: str, fields: Sequence[str]) -> None:
    """Write the plan. If several rows have the same id, any of them counts."""
    import pyspark.sql.functions as sf

    columns = [_named(df, primary_key).cast("string").alias("user_id")]
    totals = [sf.count(sf.lit(1)).alias("rows")]
    if fields:
        row = sf.struct(*(_value(df, name).alias(name) for name in fields))
        columns.append(sf.to_json(row, _JSON).alias("fields"))
        totals.append(sf.first("fields").alias("fields"))
    # Rows without an id are a group, too, so they are counted in the same evaluation.
    users = df.select(*columns).groupBy("user_id").agg(*totals)
    chunks = users.mapInArrow(partition, schema_of(chunk_schema(personal=bool(fields))))
    chunks.write.mode("append").parquet(uri(Path(partition.plan)))


def count(session: SparkSession, folder: RunFolder, plan: Path, *, primary_key: str) -> dict[str, Any]:
    """Return the counts of a written plan, for its manifest.

    Raises ValidationError if rows have no id, RunFileError if the plan is not whole.
    """
    import pyspark.sql.functions as sf

    frame = session.read.schema(schema_of(chunk_schema(personal=False))).parquet(uri(plan))
    bad = sf.when(sf.col("chunk_id").isin(NULL, EMPTY), sf.col("chunk_id"))
    totals = frame.groupBy(bad.alias("bad")).agg(
        sf.count(sf.lit(1)).alias("chunks"),
        sf.count_distinct("chunk_id").alias("ids"),
        sf.sum(sf.size("user_ids")).alias("users"),
        sf.sum("rows").alias("rows"),
    )
    groups = {row["bad"]: row for row in totals.collect()}
    missing = [f"{groups[name]['rows']:,} rows have {words}" for name, words in _NO_ID.items() if name in groups]
    if missing:
        raise ValidationError(
            f"{' and '.join(missing)} in {printable(primary_key, 60)!r}: nothing was sent; filter them out"
        )
    good = groups.get(None)
    if good is None:
        return {"chunks": 0, "users": 0, "duplicates": 0, "checksum": "0"}
    users = frame.select(sf.explode("user_ids").alias("user_id")).agg(*hashes()).collect()[0]
    if good["chunks"] != good["ids"] or good["users"] != users["users"]:
        raise run_file_error(folder.path, "its plan does not read as it was written: nothing was sent; try again")
    return {
        "chunks": good["chunks"],
        "users": good["users"],
        "duplicates": good["rows"] - good["users"],
        "checksum": str(users["checksum"]),
    }


_NO_ID = {NULL: "no user id (NULL)", EMPTY: "an empty user id"}


def hashes() -> list[Column]:
    """Return columns with the number of user ids, and the sum of their hashes, which is the same in any order."""
    import pyspark.sql.functions as sf

    hashed = sf.xxhash64("user_id").cast("decimal(38,0)")
    return [sf.count("user_id").alias("users"), sf.coalesce(sf.sum(hashed), sf.lit(0)).alias("checksum")]


def schema_of(schema: Any) -> Any:
    """Return an Arrow schema as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _named(df: DataFrame, name: str) -> Column:
    """Return the column with exactly this name, whatever characters the name has."""
    return df["`" + name.replace("`", "``") + "`"]


def _value(df: DataFrame, name: str) -> Column:
    """Return a column as JSON takes it: decimals with all their digits, NaN as NULL."""
    import pyspark.sql.functions as sf

    column, kind = _named(df, name), df.schema[name].dataType.typeName()
    if kind == "decimal":
        return column.cast("string")
    if kind in ("float", "double"):
        return sf.when(~sf.isnan(column), column)
    return column
