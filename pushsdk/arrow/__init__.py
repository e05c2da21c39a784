"""Pushes from Apache Arrow's record batches, for any engine that has them: ``push_batches``."""

try:
    import pyarrow  # noqa: F401 - only checked
except ModuleNotFoundError:
    raise ImportError("pushsdk.arrow needs pyarrow (the extra 'arrow'): pip install pyarrow") from None

from pushsdk._public import set_public_module
from pushsdk.arrow._chunks import outcome_schema, plan_schema
from pushsdk.arrow._push import push_batches

__all__ = ["outcome_schema", "plan_schema", "push_batches"]

set_public_module(__name__, __name__)
