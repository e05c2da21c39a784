"""Folders: run files that share one plan, for processes that each send another file."""

import os
import re
import time
from contextlib import closing
from itertools import islice
from operator import attrgetter, itemgetter
from pathlib import Path

import msgspec

from pushsdk._core.errors import RunPlanError
from pushsdk._runs.plan import Notes
from pushsdk._runs.run_file.file import run_file_error
from pushsdk._runs.run_file.journal import Journal

PLAN = "plan"  # the run file that is split, and not sent
_NAMES = "{}-of-{}.run"
_numbers_in = re.compile(_NAMES.format("([0-9]+)", "([0-9]+)").replace(".", r"\.")).fullmatch
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
    files = _files(run, parts)
    _check_whole(run, sum(map(os.path.exists, files)), parts)
    return files


def _unplanned_files(run: Path) -> list[Path]:
    """Return the run files that were made one by one: their names tell that each has other users."""
    names = filter(None, map(_numbers_in, map(attrgetter("name"), run.glob(_NAMES.format("*", "*")))))
    files = sorted([(int(name[1]), int(name[2]), run / name[0]) for name in names])
    parts = max(map(itemgetter(1), files), default=0)
    _check_whole(run, len(files), parts)
    if [numbers for *numbers, _ in files] != [[number, parts] for number in range(parts)]:
        why = f"it has other run files than 0-of-{parts}.run to {parts - 1}-of-{parts}.run: move those away"
        raise run_file_error(run, why, kind=RunPlanError)
    return [file for _, _, file in files] or [run]


def _check_whole(run: Path, number: int, parts: int) -> None:
    if number < parts:
        why = f"it has {number} of {parts} run files: restore the others; another run would push again to their users"
        raise run_file_error(run, why, kind=RunPlanError)


def check_plan(run: Path) -> None:
    """Raise RunPlanError for a folder with run files and no plan: they were made one by one, or it was removed."""
    if not run.joinpath(PLAN).exists() and any(run.glob(_NAMES.format("*", "*"))):
        why = "it has run files without their plan: resume each of them, and name another folder for another broadcast"
        raise run_file_error(run, why, kind=RunPlanError)


def _files(run: Path, parts: int) -> list[Path]:
    return [run / _NAMES.format(f"{number:03}", f"{parts:03}") for number in range(parts)]


def split(plan: Journal, *, durable: bool) -> None:
    """Copy a sealed plan to run files beside it, once. Goes on if a process was killed meanwhile.

    Raises RunPlanError if another run's file is there.
    """
    if plan.notes.ended is not None:
        return
    header, left_out = msgspec.structs.replace(plan.header, parts=0), (plan.duplicates, plan.excluded)
    files = _files(plan.path.parent, plan.header.parts)
    for number, path in enumerate(files):
        first, last = (place * plan.chunks // len(files) for place in (number, number + 1))
        chunks = map(plan.load, range(first, last))
        with closing(Journal.open_or_create(path, header, durable=durable)) as part:
            if part.header != header:
                raise run_file_error(path, "it belongs to another run: name another folder", kind=RunPlanError)
            while not part.sealed:
                if block := list(islice(chunks, _CHUNKS)):
                    part.add(block)
                else:
                    part.seal(duplicates=left_out[0], excluded=left_out[1])
        left_out = 0, 0
    plan.commit([], Notes(ended=time.time()))
