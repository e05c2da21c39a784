"""Spark broadcasts: a DataFrame of users, sent by many executors, each user once.

Needs the extra ``spark``. pyspark and pyarrow are imported when a function needs them.
"""

from pushsdk._public import set_public_module
from pushsdk.spark._claims import DirectoryClaims
from pushsdk.spark._folder import SparkReport, read_report
from pushsdk.spark._run import broadcast

__all__ = ["DirectoryClaims", "SparkReport", "broadcast", "read_report"]

set_public_module(__name__, __name__)
