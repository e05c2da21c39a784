"""Folders: run files that share one plan, for processes that each send another file."""

import os
import re
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from pushsdk._core.errors import RunPlanError
from pushsdk._runs.plan import Notes
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Journal

PLAN = "plan"  # the run file that is split, and not sent
_CHUNKS = 1000  # in one transaction


def run_files(run: Path) -> list[Path]:
    """Return the path itself, or a folder's run files. Raises RunPlanError if some are missing."""
    if not os.path.isdir(run):  # raises nothing, whatever the path
        return [run]
    files = sorted(run.glob("*-of-*.run"))
    if not (files or run.joinpath(PLAN).exists()):
        return [run]  # another kind of folder, which is refused when it is opened
    numbers = re.findall(r"-of-(\d+)$", files[-1].stem) if files else []
    parts = int(*numbers) or 1
    if len(files) < parts:
        why = f"it has {len(files)} of {parts} run files: start the broadcast again, or restore the others"
        raise run_file_error(run, why, kind=RunPlanError)
    return files


def split(plan: Journal, *, durable: bool) -> None:
    """Copy a sealed plan to run files beside it, once. Goes on if a process was killed meanwhile."""
    if plan.notes.ended is not None:
        return
    header, parts, left_out = plan.header, plan.header.parts, (plan.duplicates, plan.excluded)
    for number in range(parts):
        chunks = map(plan.load, range(number * plan.chunks // parts, (number + 1) * plan.chunks // parts))
        path = plan.path.with_name(f"{number:03}-of-{parts:03}.run")
        part = Journal.open_or_create(path, msgspec.structs.replace(header, parts=0), durable=durable)
        with closing(part):
            while not part.sealed:
                if block := list(islice(chunks, _CHUNKS)):
                    part.add(block)
                else:
                    part.seal(duplicates=left_out[0], excluded=left_out[1])
        left_out = 0, 0
    plan.commit([], Notes(ended=time.time()))
