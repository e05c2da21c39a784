"""Broadcasts by Spark: an audience that is a DataFrame, sent by many executors, nobody twice.

Needs ``pip install 'pushsdk[spark]'``. The public names, each imported when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushsdk.spark._report import SparkReport, read_report
    from pushsdk.spark._run import broadcast

else:  # a type checker would take any name for one that this finds

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = each = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        return each

    def __dir__():
        return __all__


_MODULES = {"SparkReport": "_report", "broadcast": "_run", "read_report": "_report"}

__all__ = ["SparkReport", "broadcast", "read_report"]
