"""Label Studio instead of Mechanical Turk: write tasks and labelling config, read the JSON export to the same votes.

Formats: https://labelstud.io/guide/tasks and https://labelstud.io/guide/export (format "JSON", with all annotations of a
task; short formats such as JSON_MIN keep only one answer per task and raise an error). Label Studio has no exclusive choice:
an answer of "None of the above" together with a class is rejected on import.
"""

from __future__ import annotations

import html
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..local_files import write_whole
from ..rows import Reject
from .mturk import Medium, TaskImages, check_needs, data_uri, read_json_file
from .mturk_results import Votes, check_salt, clean, hash_worker, votes_of
from .options import (
    LABELS_PROMPT,
    NONE_OF_THE_ABOVE,
    SENSITIVE_ANSWERS,
    SENSITIVE_PROMPT,
    Option,
    answers_to_classes,
    check_options,
    read_answer,
)
from .votes import FORMS


class Project(NamedTuple):
    """The two files of a Label Studio project: ``tasks.json`` for Import, ``config.xml`` for Labeling Interface, Code."""

    tasks: Path
    config: Path


def export_tasks(
    table: pa.Table,
    folder: str,
    *,
    options: Sequence[Option],
    background: str,
    images: TaskImages | None = None,
    thumbnail_px: int = 320,
    instructions: str = "",
    prompt: str = "",
    medium: Medium = "image",
    forms: Sequence[str] = FORMS,
) -> Project:
    """Write ``folder/tasks.json`` and ``folder/config.xml``.

    A task shows the image and asks the questions of ``forms``. It contains ``image``, ``key`` and ``bucket``, but not the
    class, since annotators can see the data of a task. Set the project's annotations per task to the number of workers.

    Args:
        table: ``key``, ``bucket`` and, without ``images``, ``url``.
        options: the choices, as for ``mturk.export_batches``.
        images: key -> bytes or ``Blob``: put thumbnails into the tasks instead of URLs.
        thumbnail_px: longest side of a thumbnail.
        instructions: plain text above the question.
        prompt: the question about the classes; "" for CLEAR's.
        medium: type of the URLs.
        forms: the forms to ask.
    """
    needs = ["key", "bucket"] + ([] if images is not None else ["url"])
    check_needs(table, "images", needs)
    tasks: list[dict[str, Any]] = []
    for row in table.select(needs).to_pylist():
        address = row["url"] if images is None else data_uri(images, row["key"], side_px=thumbnail_px)
        if medium == "page":
            address = f'<a href="{html.escape(address)}" target="_blank" rel="noreferrer">{html.escape(address)}</a>'
        tasks.append({"data": {"image": address, "key": row["key"], "bucket": row["bucket"]}})
    project = Project(Path(folder) / "tasks.json", Path(folder) / "config.xml")
    texts = {"instructions": instructions, "prompt": prompt}
    config = labelling_config(options, background=background, medium=medium, forms=forms, **texts)
    write_whole(project.tasks, (json.dumps(tasks, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(project.config, config.encode())
    return project


_TAGS = {"image": "Image", "video": "Video", "page": "HyperText"}


def labelling_config(
    options: Sequence[Option],
    *,
    background: str,
    instructions: str = "",
    prompt: str = "",
    medium: Medium = "image",
    forms: Sequence[str] = FORMS,
) -> str:
    """The labelling interface as XML. Answers contain the ``alias`` of a choice, which is the name of its option."""
    check_options(options, background=background)
    view = ET.Element("View")
    ET.SubElement(view, _TAGS[medium], name="image", value="$image")
    if instructions:
        ET.SubElement(view, "Header", value=instructions)
    ET.SubElement(view, "Header", value=prompt or LABELS_PROMPT)
    labels = ET.SubElement(view, "Choices", name="labels", toName="image", choice="multiple", required="true")
    for option in options:
        if option.shown.startswith("$"):
            raise ValueError(f"option {option.shown!r}: Label Studio reads a leading $ as the name of a task field")
        ET.SubElement(labels, "Choice", value=option.shown, alias=option.name)
    ET.SubElement(labels, "Choice", value=NONE_OF_THE_ABOVE)
    if "sensitive" in forms:
        ET.SubElement(view, "Header", value=SENSITIVE_PROMPT)
        sensitive = ET.SubElement(view, "Choices", name="sensitive", toName="image", choice="single", required="true")
        for answer in SENSITIVE_ANSWERS:
            ET.SubElement(sensitive, "Choice", value=answer)
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def choice_config(names: Sequence[str]) -> str:
    """Labelling interface, as XML, of a project that asks for one class per image; the answer is named ``class``.

    >>> choice_config(["disc", "square"]).count("<Choice ")
    2
    """
    view = ET.Element("View")
    ET.SubElement(view, "Image", name="image", value="$image")
    choices = ET.SubElement(view, "Choices", name="class", toName="image", choice="single", required="true")
    for name in names:
        if name.startswith("$"):
            raise ValueError(f"class {name!r}: Label Studio reads a leading $ as the name of a task field")
        ET.SubElement(choices, "Choice", value=name)
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def read_label_studio(
    paths: Sequence[str],
    *,
    options: Sequence[Option],
    salt: str,
    keys: Mapping[str, Any] | None = None,
    earlier: pa.Table | None = None,
    forms: Sequence[str] = FORMS,
) -> Votes:
    """Read the votes of one or more JSON exports; each annotation gives one vote per form.

    Args:
        paths: files exported as "JSON".
        options, salt: as for ``mturk_results.read_mturk_results``; the worker is ``completed_by``.
        keys: the images asked about; None accepts any image.
        earlier: votes read before with the same salt. The same answer again counts as known; a different answer of the same
            worker is rejected as ``duplicate_worker``.
        forms: the forms that were asked.

    Returns:
        Votes in file order (label vote and sensitive vote of an annotation next to each other), and rejects:
        ``no_image``, ``unknown_image``, ``annotation_cancelled``, ``no_worker``, ``duplicate_worker``,
        ``empty_answer``, ``malformed_answer``, ``unknown_label``, ``none_with_others``.

    Raises:
        ValueError: a file is not such an export.
    """
    check_salt(salt)
    classes = answers_to_classes(options)
    votes: list[tuple[Any, ...]] = []
    rejects: list[tuple[str, str, str]] = []
    known = 0
    names = ("key", "form", "worker", "labels", "sensitive")
    before = {} if earlier is None else {row[:3]: row[3:] for row in zip(*(earlier[n].to_pylist() for n in names), strict=True)}
    voted = {(worker, key) for key, _, worker in before}
    for path in paths:
        for place, task in enumerate(_tasks(Path(path))):
            key = task["data"].get("key") or ""
            key = str(key) if isinstance(key, int | str) else f"(a {type(key).__name__})"
            for number, annotation in enumerate(task["annotations"]):
                try:
                    votes += _votes(key, annotation, classes, salt, keys, voted, forms)
                except Reject as refused:
                    if refused.reason == "duplicate_worker":
                        again = _first_votes(key, annotation, classes, salt, keys, forms)
                        if again and all(before.get(vote[:3]) == vote[3:5] for vote in again):
                            known += len(again)
                            continue
                    where = f"{clean(Path(path).name)} task {place} annotation {number}"
                    rejects.append((clean(key), refused.reason, f"{where}: {refused.detail}"))
    return votes_of(votes, rejects, known=known)


def _first_votes(
    key: str,
    annotation: Any,
    classes: Mapping[str, str],
    salt: str,
    keys: Mapping[str, Any] | None,
    forms: Sequence[str],
) -> list[tuple[Any, ...]]:
    """The votes of an annotation as if nobody had voted before; [] if it is rejected for another reason."""
    try:
        return _votes(key, annotation, classes, salt, keys, set(), forms)
    except Reject:
        return []


def _tasks(path: Path) -> list[dict[str, Any]]:
    tasks = read_json_file(path)
    if not isinstance(tasks, list):
        raise ValueError(f"{path}: not a Label Studio export: a list of tasks is expected")
    for place, task in enumerate(tasks):
        good = isinstance(task, dict) and isinstance(task.get("data"), dict) and isinstance(task.get("annotations"), list)
        if not good:
            raise ValueError(f"{path}: task {place} has no 'data' or no 'annotations': export in the form JSON, not JSON_MIN")
    return tasks


def _votes(
    key: str,
    annotation: Any,
    classes: Mapping[str, str],
    salt: str,
    keys: Mapping[str, Any] | None,
    voted: set[tuple[str, str]],
    forms: Sequence[str],
) -> list[tuple[Any, ...]]:
    """The votes of an annotation, one per form, as rows of ``VOTES``; raises ``Reject``."""
    if not key:
        raise Reject("no_image", "data.key is empty")
    if clean(key) != key or (keys is not None and key not in keys):
        raise Reject("unknown_image", f"{key!r:.60} was not asked about")
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        raise Reject("malformed_answer", "an annotation without 'result'")
    if annotation.get("was_cancelled"):
        raise Reject("annotation_cancelled", "the annotator skipped the task")
    worker = annotation.get("completed_by")
    worker = worker.get("id") if isinstance(worker, dict) else worker
    if worker is None or worker == "":
        raise Reject("no_worker", "completed_by is empty")
    if isinstance(worker, bool) or not isinstance(worker, int | str):
        raise Reject("no_worker", f"completed_by is a {type(worker).__name__}, not the number of a user")
    if clean(str(worker)) != str(worker):
        raise Reject("no_worker", f"completed_by is {worker!r:.60}, which is not text")
    hashed = hash_worker(str(worker), salt)
    if (hashed, key) in voted:
        raise Reject("duplicate_worker", f"worker {hashed} has answered for this image before")
    answers = {name: _choices(annotation["result"], name) for name in forms}
    labels = read_answer(answers["labels"], classes)
    if "sensitive" in forms and answers["sensitive"] not in [[answer] for answer in SENSITIVE_ANSWERS]:
        raise Reject("malformed_answer", f"sensitive is {answers['sensitive']!r:.80}, not {' or '.join(SENSITIVE_ANSWERS)}")
    voted.add((hashed, key))
    seconds = _seconds(annotation.get("lead_time"))
    votes: list[tuple[Any, ...]] = [(key, "labels", hashed, labels, None, seconds, None)]
    if "sensitive" in forms:
        votes.append((key, "sensitive", hashed, None, SENSITIVE_ANSWERS[answers["sensitive"][0]], seconds, None))
    return votes


def _seconds(lead_time: Any) -> float | None:
    try:
        seconds = float(lead_time) if isinstance(lead_time, int | float) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        return None
    return seconds if math.isfinite(seconds) else None


def _choices(result: list[Any], name: str) -> Any:
    regions = [region for region in result if isinstance(region, dict) and region.get("from_name") == name]
    if not regions:
        raise Reject("empty_answer", f"the question {name!r} was not answered")
    value = regions[0].get("value")
    if len(regions) > 1 or not isinstance(value, dict):
        raise Reject("malformed_answer", f"the question {name!r} has {len(regions)} answers")
    return value.get("choices")
