"""Functions that are compiled to machine code when they are first called.

``compiled`` is numba's own way. numba takes most of a second to load, though, which is long for work of a few: ``Passes`` are
compiled by numba once on a machine, and are loaded by llvmlite alone in a tenth of a second from then on.

Machine code is run unseen, so it is taken only from a file and folders that nobody else may write to. numba's own cache would
not do in its place: it looks at no owner, and numba has to be loaded for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import platformdirs

from .files import replacing


def compiled(function: Callable[..., Any], **flags: Any) -> Callable[..., Any]:
    """Machine code, kept next to the module or in the user's cache; where neither can be written, or others can write to what
    numba is told to use (``NUMBA_CACHE_DIR``), each process makes its own."""
    import numba

    # numba compiles, or loads, when the function is called first.
    with contextlib.suppress(RuntimeError, OSError):  # PermissionError among the latter
        made = numba.njit(function, cache=True, error_model="numpy", **flags)
        folder = Path(made.stats.cache_path or "")
        if folder != Path(function.__code__.co_filename).parent / "__pycache__":  # there lies Python's own code, too
            _check_folders(folder / "any")
            if folder.stat().st_mode & 0o022:  # with the sticky bit
                raise PermissionError(folder)
        return made
    return numba.njit(function, error_model="numpy", **flags)


class Passes:
    """The functions of a module that are written for ``numba.cfunc``, as attributes.

    Each takes whole numbers and arrays, which it gets as the addresses of their first items, and gives a whole number. It must
    neither raise nor make arrays: nothing of Python's or numba's is there when it runs, and other threads run next to it. The
    cache goes by the text of the module, which must not import from the project.

    Args:
        module: full name of the module.
        load: imports it. It is only called, and numba only loaded, where the functions are not in the user's cache; an import
            in the body of a function is also what tells the engine that the module belongs to the code of a step.
    """

    def __init__(self, module: str, load: Callable[[], ModuleType]) -> None:
        self._module, self._load = module, load
        self._lock = threading.Lock()
        self._functions: dict[str, Callable[..., int]] | None = None

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("_"):
            with self._lock:
                if self._functions is None:
                    self._functions = self._loaded()
            if name in self._functions:
                return self._functions[name]
        raise AttributeError(f"{self._module} has no pass {name!r}")

    # No property: an AttributeError out of one, such as numba's where it does not fit numpy, would lead back to __getattr__.
    def _loaded(self) -> dict[str, Callable[..., int]]:
        machine = _machine()
        names, code = self._code(machine)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return {name: _Function(engine, engine.get_function_address(name)) for name in names}

    def _code(self, machine: Any) -> tuple[list[str], bytes]:
        """Names of the functions and their object file, out of the cache or compiled."""
        name = f"{self._module}-{self._key(machine)[:32]}.o"
        with contextlib.suppress(OSError, ValueError):  # not there, or damaged
            digest, names, code = _own_bytes(_cache() / name).split(b"\n", 2)
            if digest.decode() == hashlib.sha256(names + code).hexdigest():
                return names.decode().split(), code
        names, code = _compile(self._load(), machine)
        with contextlib.suppress(OSError):  # without a cache every process compiles
            told = " ".join(names).encode()
            held = b"\n".join([hashlib.sha256(told + code).hexdigest().encode(), told, code])
            with replacing(_own_folder() / name, sync=False) as temporary:
                temporary.touch(mode=0o600)
                temporary.write_bytes(held)
        return names, code

    def _key(self, machine: Any) -> str:
        spec = importlib.util.find_spec(self._module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{self._module}: no such module")
        made_by = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
        recipe = [Path(spec.origin).read_text(), Path(__file__).read_text(), made_by, machine.triple, _processor()]
        return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()


class _Function:
    """A function at an address."""

    def __init__(self, engine: Any, address: int) -> None:
        self._engine, self._address = engine, address  # the engine owns the code

    def __call__(self, *arguments: int | np.ndarray) -> int:
        numbers = [_address(each) if isinstance(each, np.ndarray) else each for each in arguments]
        return _prototype(len(numbers))(self._address)(*numbers)


@functools.cache
def _prototype(count: int) -> Any:
    # On the machines that Python's numerical libraries run on, addresses are passed as numbers of 64 bits are.
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)


def _address(array: np.ndarray) -> int:
    if not array.flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides}: it must be C-contiguous")
    return array.ctypes.data


def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(cpu=name, features=features, opt=3, jit=True)


def _compile(module: ModuleType, machine: Any) -> tuple[list[str], bytes]:
    from numba.core.ccallback import CFunc

    functions = {name: each for name, each in vars(module).items() if isinstance(each, CFunc) and not name.startswith("_")}
    whole = llvm.parse_assembly("")
    for name, function in functions.items():
        whole.link_in(_alone(name, function, machine))
    if outside := sorted(each.name for each in whole.functions if each.is_declaration and not each.name.startswith("llvm.")):
        raise ValueError(f"{module.__name__} needs {', '.join(outside)}: a pass may raise, or makes an array")
    return list(functions), machine.emit_object(whole)


def _alone(name: str, function: Any, machine: Any) -> Any:
    """A function by its own name, without what numba puts around it for errors that it cannot have."""
    code = llvm.parse_assembly(function.inspect_llvm())
    code.get_function(function.native_name).name = name
    for each in code.functions:
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(code, builder)
    return code


def _own_folder() -> Path:
    """The folder of the cache, which is made for its owner alone; one of an earlier version is taken from others."""
    path = _cache()
    for folder in (path.parent, path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid == os.getuid() and stat.S_ISDIR(facts.st_mode) and facts.st_mode & 0o022:
            folder.chmod(0o700)
    return path


def _own_bytes(path: Path) -> bytes:
    """Content of a file that nobody but its owner, who is this user or root, can have written or put there.

    Raises:
        PermissionError: where others may write to it, or to a folder above it.
    """
    _check_folders(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o022 or facts.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{path}: others may write to it")
        return stream.read()


def _check_folders(path: Path) -> None:
    for folder in [*path.parents, *path.parent.resolve().parents]:
        facts = folder.stat()
        # Of a folder with the sticky bit, as /tmp has it, nobody can rename what is another's.
        shared = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if shared or facts.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{folder}: others may write to it")


def _cache() -> Path:
    try:
        path = platformdirs.user_cache_path("benchwright")
    except RuntimeError as error:
        raise FileNotFoundError(f"no folder for a cache: {error}") from error
    if not path.is_absolute():  # what some versions say of a user without a home; code is not taken from where one works
        raise FileNotFoundError(f"no folder for a cache: {path} is not absolute")
    return path / "compiled"
