"""Find the weights of a network in checkpoints of various forms, by the names of the tensors.

Released checkpoints hold the same tensors under different names: torchvision's have no prefix (``conv1.weight``), MoCo's are
below ``state_dict.module.encoder_q.``, OpenSelfSup's below ``state_dict.``, those of BYOL in PyTorch below ``online_backbone.``
or ``online_network.``, DINO's below ``teacher.backbone.``; Lightly numbers the layers (``state_dict.backbone.0.weight``).
So the tables of a file are flattened into one, which is searched for a prefix below which the network is complete. Heads,
queues and optimisers are left out, and so are networks that follow the trained one, such as ``encoder_k``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...curation.rows import one_line, visible
from .files import open_file, stamp
from .torch_files import load_tables, plain

_NOT_TAKEN = re.compile(r"(^|[._])(encoder_k|target|student|momentum|ema)([._]|$)")
"""Matches the prefix of a network that its authors do not evaluate: the momentum network of MoCo, BYOL and Lightly, the student
of DINO."""

_COUNTER = "num_batches_tracked"
"""Counter of batch norms, unused in a frozen network; checkpoints from before 2018 do not have it."""

_SHOWN, _LONGEST = 5, 120

MAX_BYTES = 1 << 34
"""Maximum size of a file of safetensors, which is read whole."""


@dataclass(frozen=True)
class Wanted:
    """The network whose weights are looked for.

    Attributes:
        model: name of the network, for errors.
        shapes: shapes of its weights by name, without the head.
        head: dotted name of the layer that is left out, "" for none; weights below it in a file are ignored.
        layers: names of its layers in order, to interpret files that number the layers.
    """

    model: str
    shapes: Mapping[str, tuple[int, ...]]
    head: str
    layers: Sequence[str]


def read_checkpoint(place: str) -> dict[str, Any]:
    """Every tensor of a file by its dotted name. The file is safetensors if its name ends so, else a torch file.

    Only plain values are unpickled.

    Raises:
        ValueError: the file has another form, or holds no tensor.
    """
    tables = read_tables(place)
    found = dict(_flat(tables))
    if not found:
        raise ValueError(f"weights {place}: no tensor in it, it is {type(tables).__name__}")
    return found


def read_tables(place: str) -> Any:
    """The tensors and tables of a file as they are in it. Raises ``ValueError`` if the file has another form."""
    return _safetensors(place) if place.endswith(".safetensors") else load_tables(place)


def _safetensors(place: str) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if (size := stamp(place)[0]) > MAX_BYTES:
        raise ValueError(f"weights {place}: {size:,} bytes: at most {MAX_BYTES:,} are read")
    with open_file(place) as stream:
        data = stream.read()
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"weights {place}: no file of safetensors: {one_line(error)}") from None


def _flat(tables: Any) -> list[tuple[str, Any]]:
    """Names and tensors; each table is visited once, even if it occurs twice or contains itself."""
    import torch

    found: list[tuple[str, Any]] = []
    todo, seen = [("", tables)], set[int]()
    while todo:
        name, value = todo.pop()
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, Mapping) and id(value) not in seen:
            seen.add(id(value))
            todo += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(list(value.items()))]
    return found


def weights_of(tensors: Mapping[str, Any], wanted: Wanted, place: str, prefix: str | None = None) -> dict[str, Any]:
    """The tensors of a network by the network's names; all of them must be there with their shapes.

    Args:
        tensors: see ``read_checkpoint``.
        wanted: the network.
        place: path of the file, for errors.
        prefix: prefix of the names in the file; None: detected.

    Raises:
        ValueError: a tensor is missing or has another shape, the file has more layers than the network, or it has several
            networks and no ``prefix`` selects one.
    """
    schemes = [{name: name for name in wanted.shapes}, _numbered(wanted)]
    prefix = prefix if prefix is None or prefix.endswith(".") else f"{prefix}."
    needed = [{theirs: ours for ours, theirs in scheme.items() if not ours.endswith(_COUNTER)} for scheme in schemes]
    counts = [_prefixes(tensors, names) if prefix is None else Counter({prefix: 1}) for names in needed]
    places = [(scheme, at) for scheme, found in enumerate(counts) for at in found]
    whole = [(scheme, at) for scheme, at in places if all(f"{at}{name}" in tensors for name in needed[scheme])]
    if not whole:
        raise ValueError(f"weights {place}: {_lacking(tensors, wanted, needed, counts)}")
    taken = [each for each in whole if not _NOT_TAKEN.search(each[1])] or whole
    scheme, at = taken[0]
    found = _below(tensors, wanted, schemes[scheme], at, place)
    others = [_below(tensors, wanted, schemes[scheme], at, place) for scheme, at in taken[1:]]
    if any(not value.equal(other[name]) for other in others for name, value in found.items()):
        message = ", ".join(f"'{_shown(at)}'" for _, at in taken[:_SHOWN])
        raise ValueError(f"weights {place}: {wanted.model} is in it below {message}: select one with encoder.prefix")
    return found


def _below(tensors: Mapping[str, Any], wanted: Wanted, names: Mapping[str, str], at: str, place: str) -> dict[str, Any]:
    """The network below a prefix, where it is complete."""
    _check_no_more(tensors, wanted, names, at, place)
    found: dict[str, Any] = {}
    for ours, theirs in names.items():
        if (value := tensors.get(f"{at}{theirs}")) is None:
            continue  # a counter
        if tuple(value.shape) != wanted.shapes[ours]:
            raise ValueError(
                f"weights {place}: {_shown(at + theirs)} is of shape {tuple(value.shape)}, and {wanted.model} has "
                f"{wanted.shapes[ours]}: give the file of a {wanted.model}, or change encoder.model"
            )
        found[ours] = plain(value, place)
    return found


def _shown(name: str) -> str:
    """A name in a file, for a message."""
    return visible(" ".join(name.split()) if len(name) <= _LONGEST else f"{' '.join(name[:_LONGEST].split())}...")


def _numbered(wanted: Wanted) -> dict[str, str]:
    """Our names -> the names in a file that numbers the layers, as ``torch.nn.Sequential`` does."""
    numbers = {name: str(number) for number, name in enumerate(wanted.layers)}
    split = {name: name.partition(".") for name in wanted.shapes}
    return {name: f"{numbers.get(first, first)}.{rest}" for name, (first, _, rest) in split.items()}


def _prefixes(tensors: Mapping[str, Any], names: Mapping[str, str]) -> Counter[str]:
    """Prefixes in front of names of the network -> number of names with this prefix."""
    found = Counter[str]()
    for full in tensors:
        at = 0
        while at <= len(full):
            if full[at:] in names:
                found[full[:at]] += 1
            at = full.find(".", at) + 1 or len(full) + 1
    return found


def _lacking(
    tensors: Mapping[str, Any], wanted: Wanted, needed: Sequence[Mapping[str, str]], counts: Sequence[Counter[str]]
) -> str:
    """Message on what a file that lacks weights has of the network."""
    found = [(at, names) for names, prefixes in zip(needed, counts, strict=True) for at in prefixes]
    most = [(sum(f"{at}{name}" in tensors for name in names), at, names) for at, names in found]
    count, at, names = max(most, key=lambda each: each[0], default=(0, "", needed[0]))
    if 2 * count < len(names):
        available = ", ".join(map(_shown, list(tensors)[:_SHOWN]))
        more = f" and {len(tensors) - _SHOWN} more" if len(tensors) > _SHOWN else ""
        return f"there is no {wanted.model} in it; it holds {available}{more}: give another file, or change encoder.model"
    missing = [name for name in names if f"{at}{name}" not in tensors]
    below = f" below '{_shown(at)}'" if at else ""
    return (
        f"{wanted.model} is incomplete in it: {len(missing)} of {len(names)} weights{below} are missing, such as "
        f"{_shown(at + missing[0])}: give another file, or change encoder.model"
    )


def _check_no_more(tensors: Mapping[str, Any], wanted: Wanted, names: Mapping[str, str], at: str, place: str) -> None:
    """Raise ``ValueError`` if the file has further weights in layers of the network, as a deeper network does."""
    known, layers = set(names.values()), {name.partition(".")[0] for name in names.values()}
    for full in tensors:
        name = full.removeprefix(at)
        if not full.startswith(at) or name in known or name.partition(".")[0] not in layers or name.endswith(_COUNTER):
            continue
        if not (wanted.head and name.startswith(f"{wanted.head}.")):
            raise ValueError(
                f"weights {place}: {_shown(full)} is in it, which {wanted.model} does not have: give the file of a "
                f"{wanted.model}, or change encoder.model"
            )
