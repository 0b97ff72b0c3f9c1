"""Labels of the lines of tables and figures, and the settings that distinguish lines but do not fit in their labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LabelledSettings = tuple[str, str, Mapping[str, Any]]
"""Label, method, and settings (with the model) by dotted name, of one line of a table or figure."""


def unnamed(lines: Sequence[LabelledSettings]) -> list[dict[str, Any]]:
    """For each line of a table or figure, the settings in which lines differ and that its label leaves out.

    Lines of the same method differ in a setting that any of them lacks; lines of several methods, only in settings both have.

    >>> one = {"model": "linear", "epochs": 20, "method.memory": "reservoir"}
    >>> unnamed([("er", "er", one), ("ewc", "ewc", {"model": "linear", "epochs": 5, "method.strength": 0.4})])
    [{'epochs': 20}, {'epochs': 5}]
    """
    of_method: dict[str, list[Mapping[str, Any]]] = {}
    values: dict[tuple[str, str], list[Any]] = {}
    for _, method, settings in lines:
        of_method.setdefault(method, []).append(settings)
        for name, value in settings.items():
            values.setdefault((name, _owner(name, method, settings)), []).append(value)
    within = {method: _differing(some) for method, some in of_method.items()}
    between = {key for key, some in values.items() if any(value != some[0] for value in some)}
    return [
        {
            name: settings.get(name)
            for name in dict.fromkeys([*settings, *within[method]])
            if (name in within[method] or (name, _owner(name, method, settings)) in between) and f", {name} = " not in label
        }
        for label, method, settings in lines
    ]


def _owner(name: str, method: str, settings: Mapping[str, Any]) -> str:
    """The owner of a setting, so that equal names of different owners are different settings: a method, an estimator, or none.

    The model of a method that consists of an estimator only also belongs to the method.
    """
    first = name.partition(".")[0]
    estimates = any(each.partition(".")[0] == "estimator" for each in settings)
    if first == "method" or (first == "model" and estimates):
        return method
    return str(settings.get("model")) if first == "estimator" else ""


def differences(apart: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Map labels of lines to the settings that these lines share and their labels leave out. Digests are cut to 12 characters.

    Args:
        apart: label -> the result of ``unnamed`` for each line of a table or figure.

    >>> differences({"er": {"epochs": 20}, "lwf": {"epochs": 20}, "ewc": {"epochs": 5}})
    {'er; lwf': ['epochs = 20'], 'ewc': ['epochs = 5']}
    >>> differences({"er": {"epochs": 20}, "ewc": {"epochs": 5}, "lwf": {"epochs": 20}, "si": {"epochs": 20}})
    {'ewc': ['epochs = 5'], 'the others': ['epochs = 20']}
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for label, settings in apart.items():
        texts = (f"{name} = {_short(value)}" for name, value in settings.items() if value is not None)
        groups.setdefault(tuple(texts), []).append(label)
    most = max(groups, key=lambda texts: len(groups[texts]), default=())
    of_settings: dict[str, set[tuple[str, ...]]] = {}
    for label, texts in ((label, texts) for texts, labels in groups.items() for label in labels):
        of_settings.setdefault(split_label(label)[1], set()).add(texts)
    found: dict[str, list[str]] = {}
    for texts, labels in groups.items():
        shared = dict.fromkeys(split_label(label)[1] for label in labels)
        alike = "" not in shared and all(of_settings[each] == {texts} for each in shared)
        if texts and (texts != most or len(labels) < 3 or len(groups) == 1):
            found["; ".join(shared if alike else labels)] = [*texts]
    if most and len(groups[most]) > 2 and len(groups) > 1:
        found["the others"] = [*most]
    return found


def split_label(label: str) -> tuple[str, str]:
    """Split a label into its name and the settings that it shows.

    >>> split_label("er, features = clip, memory.size = 20")
    ('er', 'features = clip, memory.size = 20')
    """
    found = re.fullmatch(r"(.+?)(?:, ([\w.]+ = .+))?", label, re.DOTALL)
    return (found[1], found[2] or "") if found else (label, "")


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if _is_digest(text) else text


_LEARNED = "features"
"""Setting that names the training data of a line."""


def always_shown(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Settings that all labels of a table show, also those of methods with one line: "features" if any two lines differ in it;
    otherwise "model" if two lines of one method differ in it.

    Args:
        lines: method, and settings by dotted name, of each line.

    >>> always_shown([("er", {"model": "gcn"}), ("er", {"model": "st_gcn"}), ("ewc", {"model": "gcn"})])
    ['model']
    >>> always_shown([("er", {"model": "gcn"}), ("ewc", {"model": "st_gcn"})])
    []
    """
    found = list(lines)
    if len({settings.get(_LEARNED) for _, settings in found}) > 1:
        return [_LEARNED]
    models: dict[str, set[Any]] = {}
    for method, settings in found:
        models.setdefault(method, set()).add(settings.get("model"))
    return ["model"] if any(len(those) > 1 for those in models.values()) else []


def line_labels(lines: Sequence[tuple[str, Mapping[str, Any]]], *, always: Sequence[str] = ()) -> list[str]:
    """The label of each line: its method, with the settings needed to distinguish it from the other lines of the method:
    features and model first, digests (cut to 12 characters) only if nothing else distinguishes.

    Args:
        lines: method, and settings by dotted name, of each line.
        always: settings to show even where no line differs, in the lines that have them.

    >>> line_labels([("er", {"memory.size": 200, "seed": 0}), ("er", {"memory.size": 100, "seed": 0}), ("ewc", {"seed": 1})])
    ['er, memory.size = 200', 'er, memory.size = 100', 'ewc']
    """
    of_method: dict[str, list[Mapping[str, Any]]] = {}
    for method, settings in lines:
        of_method.setdefault(method, []).append(settings)
    return [
        _label(method, settings, of_method[method], [name for name in always if name in settings]) for method, settings in lines
    ]


def _label(method: str, settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]], always: Sequence[str]) -> str:
    all_of = [settings, *others]
    names = [*always, *_differing(all_of)]
    first = sorted(names, key=lambda name: (any(_is_digest(one.get(name)) for one in all_of), name not in (_LEARNED, "model")))
    texts = [*always]
    for name in first:
        if len({_shown_of(one, [*texts, name]) for one in all_of}) > len({_shown_of(one, texts) for one in all_of}):
            texts.append(name)
    return ", ".join([method, *(f"{name} = {_shown(name, settings, all_of)}" for name in dict.fromkeys(texts))])


def _differing(all_of: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the settings that differ between any of these."""
    names = dict.fromkeys(name for one in all_of for name in one)
    return [name for name in names if any(one.get(name) != all_of[0].get(name) for one in all_of)]


def _shown_of(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    return repr([settings.get(name) for name in names])


def _shown(name: str, settings: Mapping[str, Any], all_of: Sequence[Mapping[str, Any]]) -> str:
    """A setting's value as a label shows it."""
    said, *others = [str(one.get(name, "none")) for one in (settings, *all_of)]
    return _short(said) if _is_digest(said) else shortened([said, *others])[0]


def shortened(texts: Sequence[str], most: int = 40) -> list[str]:
    """Cut texts to at most ``most`` characters, if they remain distinct.

    >>> shortened(["[0.485, 0.456, 0.406, 0.229, 0.224, 0.225]", "none"], most=20)
    ['[0.485, 0.456, 0....', 'none']
    """
    short = [text if len(text) <= most else f"{text[: most - 3]}..." for text in texts]
    return short if len({*short}) == len({*texts}) else list(texts)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
