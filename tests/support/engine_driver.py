"""A Spark driver in a separate process, to be killed: broadcasts and prints the result."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

from pushsdk import Batching, Limits
from pushsdk.spark import broadcast
from support.engine_lab import spark_session

MESSAGE = {"title": {"en": "Hello"}, "iosEnabled": True}
#: In many requests, few at a time: there is a middle in which to be killed.
CALM = {"batching": Batching(max_users=50), "limits": Limits(in_flight=4)}


def main():
    users, run_dir = sys.argv[1:]
    if "SPARK_REMOTE" in os.environ:
        from pyspark.sql import SparkSession

        session = nullcontext(SparkSession.builder.create())
    else:
        session = spark_session("local[2]", Path(run_dir).parent)
    with session as spark:
        df = spark.range(int(users)).selectExpr("concat('user-', id) AS user_id")
        broadcast(df, MESSAGE, run_dir, tasks=2, **CALM)


if __name__ == "__main__":
    main()
