"""Check, before a run makes anything, which packages and devices its stages need, from the text of their code."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .code_loading import module_of
from .definitions import Module, read_module
from .encoders.spec import OpenClip
from .extras import EXTRAS, NeedsPackage, how_to_get, missing
from .flow import PlanError, Stage
from .keys import codes_in, plain
from .reachable_code import reached, source_file


def check_packages(stages: Iterable[Stage]) -> None:
    """Raise ``NeedsPackage`` for the first stage that will import a package of ``EXTRAS`` that is not installed.

    Only imports in the stage's function and in functions and classes among its settings count, with the modules that these
    import. Functions that they call in other modules are ignored, because they may need a package only for one kind of file.
    """
    if not any(map(missing, EXTRAS)):
        return
    seen: set[Any] = set()  # hundreds of trainings have a few functions
    for stage in stages:
        codes = {code: None for code in _codes(stage) if code not in seen}
        seen.update(codes)
        for module, names in map(_names_in, codes):
            for importer, package in _imports(module, names):
                if missing(package):
                    raise NeedsPackage(f"stage {stage.name!r} {how_to_get(package, importer)}")


def check_devices(stages: Iterable[Stage]) -> None:
    """Raise ``PlanError`` for the first stage on a device that torch cannot use here, or its encoder's backend does not use.

    Whether torch can use the device is checked only for stages that use torch: encoders without torch ignore the device.
    """
    for stage in stages:
        device = _device(stage)
        clips = [each for step in stage.steps if isinstance(each := step.settings.get("encoder"), OpenClip)]
        backend = next((each.backend for each in clips), "torch")
        if needs_gpu(stage) and backend != "torch":
            message = f"encoder.backend = {backend!r} runs only on CPUs, but device = {device!r}"
            raise PlanError(f"stage {stage.name!r}: {message}: set the backend to 'torch', or change the setting")
        ours = needs_gpu(stage) or (clips and device != "cpu")  # any other step may mean something else by its ``device``
        if ours and _uses_torch(stage) and not missing("torch"):
            try:
                check_device(device)
            except ValueError as error:
                raise PlanError(f"stage {stage.name!r}: {error}; run it elsewhere, or change the setting") from None


def check_device(name: str) -> None:
    """Raise ``ValueError`` if torch knows no such device, or cannot use it on this machine."""
    import torch

    try:
        torch.device(name)
    except RuntimeError:
        raise ValueError(f"device = {name!r}: expected cpu, cuda or cuda:N") from None
    kind, _, number = name.partition(":")
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(kind, lambda: True)()
    if not there or (kind == "cuda" and torch.cuda.device_count() <= int(number or 0)):
        raise ValueError(f"device = {name!r}: this machine has none that torch can use")


def needs_gpu(stage: Stage) -> bool:
    """Whether the setting ``device`` of the stage is a GPU."""
    return _device(stage).startswith("cuda")


def resources_of(stage: Stage) -> dict[str, float]:
    """What a cluster worker must offer for a part of the stage, and how much of it, as in ``dask worker --resources GPU=1``.

    Raises ``PlanError`` if the stage's ``needs`` does not say so.
    """
    needs = stage.needs if stage.needs is not None else "GPU" if needs_gpu(stage) else ""
    found: dict[str, float] = {}
    for each in needs.replace(",", " ").split():
        name, equals, amount = each.partition("=")
        try:
            found[name] = float(amount) if equals else 1.0
        except ValueError:
            found[name] = math.nan
        if not (name and 0 < found[name] < math.inf):
            rule = "RESOURCE, or RESOURCE=AMOUNT such as GPU=2; several are joined by commas"
            raise PlanError(f"stage {stage.name!r} needs {each!r}: {rule}")
    return found


def _device(stage: Stage) -> str:
    return next((str(plain(step.settings["device"])) for step in stage.steps if "device" in step.settings), "cpu")


def _uses_torch(stage: Stage) -> bool:
    if any(isinstance(step.settings.get("encoder"), OpenClip) for step in stage.steps):
        return True
    return any(package == "torch" for module, names in map(_names_in, _codes(stage)) for _, package in _imports(module, names))


def _codes(stage: Stage) -> Iterator[Any]:
    """All functions and classes of a stage, or their names."""
    for step in stage.steps:
        yield step.function
        for value in step.settings.values():
            yield from codes_in(value)


def _names_in(code: Any) -> tuple[str, set[str]]:
    """Module, or file, of a function or class, and the names in it that it reaches."""
    if isinstance(code, str):
        place, _, name = code.rpartition(":")
        module = Path(place).stem if place.endswith(".py") else place
    else:
        place, name, module = code.__module__, code.__qualname__, module_of(code)
    found = {*reached(code).definitions.get(module, ())}
    # "*": the text does not show what is looked up in the module, so only the name itself is certain.
    return place, {name.partition(".")[0]} if "*" in found else found


def _imports(name: str, definitions: set[str]) -> Iterator[tuple[str, str]]:
    """(importing module, top-level package) of everything imported with a module, and in the bodies of some definitions."""
    waiting, seen = [name], {name}
    while waiting:
        importer = waiting.pop()
        module = _read(importer)
        if module is None:
            continue
        imported = [*module.imported, *(_inner(module, definitions) if importer == name else ())]
        for each in imported:
            top = each.partition(".")[0]
            yield importer, top
            if top == "benchwright" and each not in seen:
                seen.add(each)
                waiting.append(each)


def _inner(module: Module, definitions: set[str]) -> Iterator[str]:
    for name in sorted(definitions):
        for unit in module.names.get(name, ()):
            for target in unit.needed:
                yield from (target.module, *([f"{target.module}.{target.name}"] if target.name else ()))


def _read(name: str) -> Module | None:
    try:
        file = Path(name) if name.endswith(".py") else source_file(name)
        return read_module(name, str(file), os.stat(file).st_mtime_ns) if file else None
    except OSError:
        return None
