"""What a stage's recipe key is made of: the code that a step reaches, its settings, and the fingerprints of its sources.

A key says what *should* be made; the content digest (``curation.digest``) says what *was* made. They are never mixed.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import json
import posixpath
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import fsspec
import numpy as np

T = TypeVar("T")


class Where(str):
    """A path or URL among the settings of a step: it says where a source lies, and only its content counts in the key."""

    __slots__ = ()


class WhereOfRows(Where):
    """A place whose name goes with the rows that the step is given: see ``where_of_rows``."""

    __slots__ = ()

    def of(self, digest: str) -> Where:
        """The place for rows of that content digest."""
        stem, extension = posixpath.splitext(self)
        return Where(f"{stem}-{digest[:16]}{extension}")


class How(Generic[T]):
    """A setting that changes the speed and never the result (batch size, device, time-outs): no part of the key."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


def where(path: str | Path) -> str:
    """Mark a setting as the place of a source: a local path or an fsspec URL, of a file or a folder."""
    return Where(str(path))


def where_of_rows(path: str) -> str:
    """Mark a setting as the place of a source that is about certain rows, those that the step is given.

    The start of their content digest stands before the extension of the file: other rows have another file.
    """
    return WhereOfRows(path)


def how(value: T) -> T:
    """Mark a setting as one that changes the speed and never the result."""
    return How(value)  # type: ignore[return-value]  # the engine unwraps it before the step is called


def plain(value: Any) -> Any:
    """The value that the step is called with."""
    if isinstance(value, How):
        return value.value
    return str(value) if isinstance(value, Where) else value


def sha256(data: bytes | str) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def canonical(value: Any) -> str:
    """JSON text of a JSON-like value with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def as_json(name: str, value: Any) -> Any:
    """A setting as a JSON-like value.

    Raises:
        TypeError: for a value that has no faithful form in JSON, such as an open file or a model.
    """
    if isinstance(value, Where):
        return {"where": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        raise TypeError(f"setting {name!r} is a bare path, {value}: mark it with where(...)")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: as_json(name, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, Mapping):
        return {str(key): as_json(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(name, item) for item in value]
    raise TypeError(f"setting {name!r} is {value!r}: settings are numbers, text, lists, tables and frozen dataclasses")


# ---------------------------------------------------------------------------------------------------------------- code


def code_digest(function: Callable[..., Any]) -> str:
    """Digest of the code that a step reaches: its module, and the first-party modules which that imports, transitively.

    Comments, docstrings and layout do not count. First-party modules are those of ``benchwright``, of the step's own
    top-level package, and, for a module outside any package, its neighbours in the same folder.
    """
    module = sys.modules[function.__module__]
    reached: dict[str, str] = {}
    pending = [module.__name__]
    home = _home(module)
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        path = _source_file(name)
        if path is None:
            continue
        tree_digest, imported = _module_code(name, str(path), path.stat().st_mtime_ns)
        reached[name] = tree_digest
        pending.extend(other for other in imported if other not in reached and _first_party(other, home))
    # A module that runs as a script or was loaded from a file has a name of no meaning: its place in the list says enough.
    own = reached.pop(module.__name__, "")
    return sha256(canonical([own, sorted(reached.items())]))


def _home(module: ModuleType) -> tuple[str, Path | None]:
    """Top-level package of a module; and its folder, where it belongs to no package."""
    file = getattr(module, "__file__", None)
    alone = "." not in module.__name__ and file is not None
    return module.__name__.partition(".")[0], Path(str(file)).parent if alone else None


def _first_party(name: str, home: tuple[str, Path | None]) -> bool:
    # Nothing is imported to find out: third-party packages may be slow to import, or broken.
    top = name.partition(".")[0]
    if top in ("benchwright", home[0]):
        return True
    return home[1] is not None and ((home[1] / f"{top}.py").is_file() or (home[1] / top).is_dir())


@functools.cache
def _source_file(name: str) -> Path | None:
    """The file of a module, found without running it or its parents; None where the name is no module of Python code."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None:
        return Path(loaded) if loaded.endswith(".py") else None
    parts = name.split(".")
    # A namespace has no code of its own, so its packages can be looked for by the finders without running anything.
    known = ".".join(parts[:2]) if parts[0] == "benchwright" else parts[0]
    try:
        spec = importlib.util.find_spec(known)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    for part in parts[known.count(".") + 1 :]:
        if path.name != "__init__.py":
            return None
        inner = path.parent / part / "__init__.py"
        path = inner if inner.is_file() else path.parent / f"{part}.py"
    return path if path.suffix == ".py" and path.is_file() else None


@functools.cache
def _module_code(name: str, path: str, _mtime_ns: int) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(Path(path).read_bytes())
    imported = tuple(sorted(set(_imports(tree, name, path.endswith("__init__.py")))))
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    return sha256(ast.dump(tree)), imported


def _imports(tree: ast.AST, name: str, is_package: bool) -> Iterator[str]:
    package = name if is_package else name.rpartition(".")[0]
    for node in _statements(tree, what_runs=True):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = importlib.util.resolve_name("." * node.level + base, package) if package else base
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, *, what_runs: bool = False) -> Iterator[ast.AST]:
    """The module and all its statements; ``what_runs`` leaves out what only a type checker sees, under ``if TYPE_CHECKING``."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if what_runs and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
        else:
            # Expressions hold no statements.
            pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


# ------------------------------------------------------------------------------------------------------------- sources

SAMPLED_BYTES = 1 << 28
"""Files above this size are fingerprinted by 256 stretches of 64 KiB, the first and the last among them."""

_STRETCHES, _STRETCH_BYTES = 256, 1 << 16


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What is known of a source before it is read.

    Attributes:
        content: goes into the key. A file's SHA-256; of a file above ``SAMPLED_BYTES`` that of its size and of stretches
            of it; for a folder, a digest of its relative names and sizes.
        witness: tells whether the source may have changed since (sizes and times); never part of a key, because a copy
            of the same data on another machine has other times.
    """

    content: str
    witness: str


def fingerprint(path: str, known: dict[str, tuple[str, str]] | None = None) -> Fingerprint:
    """Fingerprint of a file or folder, local or by fsspec URL. Reads a file once; of a folder, only its listing.

    What a large file or a folder holds is in the digest of the rows that are made of it. Their fingerprints say whether it
    is worth reading them again, together with the witness, which sees every change on this machine.

    Args:
        path: local path or URL.
        known: witness -> content of files read before; added to. A file whose size and time are unchanged is not read anew.

    Raises:
        FileNotFoundError: where nothing is there.
    """
    known = {} if known is None else known
    fs, root = fsspec.core.url_to_fs(path)
    if not fs.exists(root):
        raise FileNotFoundError(f"source {path!r}: no such file or folder")
    if fs.isfile(root):
        witness = sha256(canonical([path, _witness(fs.info(root))]))
        if path not in known or known[path][0] != witness:
            known[path] = (witness, _file_content(fs, root))
        return Fingerprint(known[path][1], witness)
    content, witness = hashlib.sha256(), hashlib.sha256()
    found: Mapping[str, Mapping[str, Any]] = fs.find(root, detail=True)
    prefix = root.rstrip("/") + "/"
    for name in sorted(found):
        relative = name.removeprefix(prefix)
        content.update(f"{relative}\0{found[name].get('size')}\n".encode("utf-8", "surrogateescape"))
        witness.update(f"{relative}\0{_witness(found[name])}\n".encode("utf-8", "surrogateescape"))
    return Fingerprint(content.hexdigest(), witness.hexdigest())


def _file_content(fs: Any, path: str) -> str:
    digest = hashlib.sha256()
    size = int(fs.size(path))
    with fs.open(path, "rb") as stream:
        if size <= SAMPLED_BYTES:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
        else:
            digest.update(f"sampled {size}\n".encode())
            for number in range(_STRETCHES):
                stream.seek((size - _STRETCH_BYTES) * number // (_STRETCHES - 1))
                digest.update(stream.read(_STRETCH_BYTES))
    return digest.hexdigest()


def _witness(info: Mapping[str, Any]) -> str:
    marks = {name: info.get(name) for name in ("size", "mtime", "ino", "ETag", "etag", "LastModified", "created", "md5")}
    return canonical({name: str(value) for name, value in marks.items() if value is not None})
