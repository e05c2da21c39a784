"""What runs in the executors' Python: pickled by the driver, so it holds plain data only, and no key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pushsdk._core.errors import ConfigurationError
from pushsdk.spark._canary import is_there
from pushsdk.spark._chunks import cut
from pushsdk.spark._folder import Folder
from pushsdk.spark._preflight import Sending

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Cutter", "Sender"]


class Cutter(msgspec.Struct, frozen=True):
    """Makes the chunks of one partition."""

    plan: str
    """The place of the plan: its name is that of no other."""
    max_users: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        _check_seen(Path(self.plan).is_dir())
        yield from cut(batches, max_users=self.max_users, prefix=f"{_place():05}-")


class Sender(msgspec.Struct, frozen=True):
    """Sends the chunks of one partition."""

    folder: str
    run: str
    message: Any
    custom_fields: Mapping[str, Any] | None
    personal: Literal["placeholders", "custom_fields"] | None
    sending: Sending

    def __repr__(self) -> str:
        return f"Sender({self.run!r})"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        from pushsdk.arrow import push_batches

        manifest = Folder(self.folder).manifest()
        _check_seen(manifest is not None and manifest.run == self.run)
        if not is_there(self.sending.claims, self.run):
            raise ConfigurationError(
                "an executor does not see the claims that the driver made: claims= has to make a store that all share"
            )
        yield from push_batches(
            batches,
            self.message,
            run=self.run,
            custom_fields=self.custom_fields,
            personal=self.personal,
            **self.sending.options(_place()),
        )


def _place() -> int:
    """That of this task among those of its job; 0 outside of one."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _check_seen(seen: bool) -> None:
    """Else each machine would have claims of its own."""
    if not seen:
        raise ConfigurationError(
            "an executor does not see run_dir as the driver does: it has to be on a file system that all of them share"
        )
