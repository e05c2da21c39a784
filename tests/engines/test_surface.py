"""The public names of `pushsdk.spark`, also without Spark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pushsdk.spark
from pushsdk import ConfigurationError
from pushsdk.spark._preflight import session_of

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


def test_every_name_is_documented_and_has_one_line_in_the_changelog():
    for name in pushsdk.spark.__all__:
        assert getattr(pushsdk.spark, name).__doc__
        line = rf"^- (?:`[^`]+`, )*`pushsdk\.spark\.{name}`[^:]*: \S"
        assert len(re.findall(line, CHANGELOG, re.MULTILINE)) == 1, name


def test_nothing_of_spark_and_arrow_is_imported_with_it():
    code = (
        "import sys, pushsdk.spark; pushsdk.spark.broadcast; print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"set()\n"


def test_without_spark_or_arrow_the_extra_is_named(monkeypatch):
    for name in ("pyspark.sql", "pyspark", "pyarrow.dataset"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"pyspark \(the extra 'spark'\): pip install 'pyspark\[sql\]'$"):
        session_of(None)
    with pytest.raises(ConfigurationError, match=r"pyarrow \(the extra 'spark'\): pip install pyarrow$"):
        next(pushsdk.spark.SparkReport(file="outcomes").rows())
