"""Folders: run files that share one plan, for processes that each send another file."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice, takewhile
from pathlib import Path

from msgspec.structs import replace

from pushsdk._core.errors import RunPlanError
from pushsdk._runs.plan import Notes
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Journal

PLAN = "plan"  # the run file that is split, and not sent
_parts_in = re.compile(r"[0-9]+-of-([0-9]+)\.run").fullmatch
_CHUNKS = 1000  # in one transaction


def run_files(run: Path) -> list[Path]:
    """Return the files to read for a run: the path itself, a folder's run files, or its plan while they are made.

    Raises RunPlanError for a folder that lacks some run files, or has two for the same users.
    """
    if not os.path.isdir(run):  # raises nothing, whatever the path
        return [run]
    parts = 0
    if run.joinpath(PLAN).exists():
        with closing(Journal.open(run / PLAN, write=False)) as journal:
            if journal.notes.ended is None:
                return [run / PLAN]  # nothing was sent
            parts = journal.header.parts
    return planned_files(run, parts) if parts else _unplanned_files(run)


def planned_files(run: Path, parts: int) -> list[Path]:
    """Return a split plan's run files. Raises RunPlanError if some are missing."""
    files = list(takewhile(os.path.exists, _files(run, parts)))
    if len(files) < parts:
        why = f"{len(files)}-of-{parts}.run is missing: restore it; another run would push again to its users"
        raise run_file_error(run, why, kind=RunPlanError)
    return files


def _unplanned_files(run: Path) -> list[Path]:
    """Return the run files that were made one by one: their names tell that each has other users."""
    found = _parts(run)
    parts = max(found, default=0)
    files = planned_files(run, parts)
    if len(found) > parts:
        why = f"it has more run files than the {parts} from 0-of-{parts}.run on: move the others away"
        raise run_file_error(run, why, kind=RunPlanError)
    return files or [run]


def check_plan(run: Path) -> None:
    """Raise RunPlanError for a folder with run files and no plan: they were made one by one, or it was removed."""
    if _parts(run) and not run.joinpath(PLAN).exists():
        why = "it has run files without their plan: resume each of them, and name another folder for another broadcast"
        raise run_file_error(run, why, kind=RunPlanError)


def _parts(run: Path) -> list[int]:
    """Return the number of parts that each run file has in its name."""
    names = [_parts_in(path.name) for path in run.glob("*.run")]
    return [int(name[1]) for name in names if name]


def _files(run: Path, parts: int) -> Iterator[Path]:
    return (run / f"{number}-of-{parts}.run" for number in range(parts))


def split(plan: Journal, *, durable: bool) -> None:
    """Copy a sealed plan to run files beside it, once. Goes on if a process was killed meanwhile.

    Raises RunPlanError if another run's file is there.
    """
    if plan.notes.ended is not None or not plan.users:
        return
    header, notes = replace(plan.header, parts=0), plan.notes
    parts = plan.header.parts
    for number, path in enumerate(_files(plan.path.parent, parts)):
        first, last = (place * plan.chunks // parts for place in (number, number + 1))
        chunks = map(plan.load, range(first, last))
        with closing(Journal.open_or_create(path, header, durable=durable)) as part:
            if part.header != header:
                raise run_file_error(path, "it belongs to another run: name another folder", kind=RunPlanError)
            while not part.sealed:
                if block := list(islice(chunks, _CHUNKS)):
                    part.add(block)
                else:
                    part.seal(duplicates=notes.duplicates, excluded=notes.excluded)
        notes = Notes()  # counted once
    plan.commit([], replace(plan.notes, ended=time.time()))
