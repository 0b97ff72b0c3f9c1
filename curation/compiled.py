"""Functions that are compiled to machine code when they are first called.

``compiled`` uses numba's own cache. Importing numba takes most of a second, though, which is long for work of a few seconds.
``Passes`` are compiled by numba once per machine, and later loaded by llvmlite alone in a tenth of a second.

Cached machine code is run unchecked, so it is loaded only from a file and folders that no other user may write to. numba's own
cache is no substitute: it does not check owners, and needs numba to be imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from .user_cache import cached, check_folders, keep


def compiled(function: Callable[..., Any], **flags: Any) -> Callable[..., Any]:
    """The function compiled by numba, with a cache next to the module or in the user's cache folder.

    Each process compiles for itself if neither folder is writable, or if others can write to ``NUMBA_CACHE_DIR``.
    """
    import numba

    # numba compiles or loads the function on its first call.
    with contextlib.suppress(RuntimeError, OSError):  # OSError includes PermissionError
        made = numba.njit(function, cache=True, error_model="numpy", **flags)
        folder = Path(made.stats.cache_path or "")
        if folder != Path(function.__code__.co_filename).parent / "__pycache__":  # Python's own bytecode is there, too
            check_folders(folder / "any")
            if folder.stat().st_mode & 0o022:  # even with the sticky bit
                raise PermissionError(folder)
        return made
    return numba.njit(function, error_model="numpy", **flags)


class Passes:
    """The ``numba.cfunc`` functions of a module, as attributes.

    Each takes integers and arrays, which are passed as the addresses of their first items, and returns an integer. It must
    neither raise nor allocate arrays: it runs without the runtimes of Python and numba, at the same time as other threads. The
    cache key includes the text of the module, which must not import from the project.

    Args:
        module: full name of the module.
        load: function that imports the module. It is called, and numba imported, only if the functions are not in the user's
            cache; the import in its body also shows the engine that the module belongs to the code of a step.
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

    # Not a property: an AttributeError in one, such as numba's for an unsuitable numpy, would call __getattr__ again.
    def _loaded(self) -> dict[str, Callable[..., int]]:
        machine = _machine()
        names, code = self._code(machine)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return {name: _Function(engine, engine.get_function_address(name)) for name in names}

    def _code(self, machine: Any) -> tuple[list[str], bytes]:
        """Names of the functions and their object file, from the cache or compiled."""
        key = self._key(machine)
        if (found := cached("compiled", self._module, key)) is not None:
            listed, code = found.split(b"\n", 1)
            return listed.decode().split(), code
        names, code = _compile(self._load(), machine)
        keep("compiled", self._module, key, b"\n".join([" ".join(names).encode(), code]))  # if it cannot be kept, all compile
        return names, code

    def _key(self, machine: Any) -> str:
        spec = importlib.util.find_spec(self._module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{self._module}: no such module")
        made_by = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
        recipe = [Path(spec.origin).read_text(), Path(__file__).read_text(), made_by, machine.triple, _processor()]
        return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()


class _Function:
    """A compiled function at an address."""

    def __init__(self, engine: Any, address: int) -> None:
        self._engine, self._address = engine, address  # the engine owns the code

    def __call__(self, *arguments: int | np.ndarray) -> int:
        numbers = [_address(each) if isinstance(each, np.ndarray) else each for each in arguments]
        return _prototype(len(numbers))(self._address)(*numbers)


@functools.cache
def _prototype(count: int) -> Any:
    # On all machines that Python's numerical libraries support, addresses are passed in the same way as 64-bit integers.
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
    """LLVM module of a function under its own name, without numba's wrapper code for errors, which it cannot raise."""
    code = llvm.parse_assembly(function.inspect_llvm())
    code.get_function(function.native_name).name = name
    for each in code.functions:
        if not each.is_declaration and each.name != name:
            each.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(code, builder)
    return code
