"""Read published spectra, and those that colour-science ships, as tables with one wavelength grid each.

Nothing is redistributed here: files are provided by the user. The spectra of colour-science (CIE illuminants, lamps, two
cameras, four 24-patch charts) need no file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...curation.bounded_reading import read_file
from ...curation.matlab import read_mat

_JIANG_HEAD = re.compile(r"([0-9]{1,5})nm-([0-9]{1,5})nm, step ([0-9]{1,5})nm")
_SFU_NM = np.arange(380.0, 781.0, 4.0)
_CAMERA_MAT = np.arange(400.0, 721.0, 10.0)
MAX_TEXT_BYTES = 1 << 23


@dataclass(frozen=True)
class Spectra:
    """Spectra by name.

    Attributes:
        names: (n,), as in the source; numbers if it has no names.
        wavelength_nm: float64 (w,), ascending.
        values: float64 (n, w), or (n, w, 3) for R, G, B of cameras; at least 0.
    """

    names: tuple[str, ...]
    wavelength_nm: np.ndarray
    values: np.ndarray

    def at(self, wavelength_nm: np.ndarray) -> np.ndarray:
        """Values at other wavelengths, linearly interpolated: (n, len, ...).

        Raises:
            ValueError: a wavelength is outside of the known range.
        """
        low, high = self.wavelength_nm[0], self.wavelength_nm[-1]
        if wavelength_nm[0] < low or wavelength_nm[-1] > high:
            raise ValueError(
                f"{wavelength_nm[0]:g} to {wavelength_nm[-1]:g} nm requested, spectra cover {low:g} to {high:g} nm"
            )
        right = np.clip(np.searchsorted(self.wavelength_nm, wavelength_nm), 1, len(self.wavelength_nm) - 1)
        share = (wavelength_nm - self.wavelength_nm[right - 1]) / (self.wavelength_nm[right] - self.wavelength_nm[right - 1])
        share = share.reshape(-1, *[1] * (self.values.ndim - 2))
        return self.values[:, right - 1] * (1 - share) + self.values[:, right] * share

    def named(self, name: str) -> np.ndarray:
        """One spectrum (w, ...). Raises ``ValueError`` if the name does not exist."""
        if name not in self.names:
            raise ValueError(f"no spectrum {name!r}: there are {', '.join(self.names)}")
        return self.values[self.names.index(name)]


def _checked(path: str, names: tuple[str, ...], wavelength_nm: np.ndarray, values: np.ndarray) -> Spectra:
    if not names:
        raise ValueError(f"{path}: no spectrum in it")
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: name {next(n for n in names if names.count(n) > 1)!r} occurs twice")
    if not (np.diff(wavelength_nm) > 0).all():
        raise ValueError(f"{path}: wavelengths do not rise")
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        place = int(np.flatnonzero(bad.reshape(len(names), -1).any(axis=1))[0])
        raise ValueError(f"{path}: spectrum {names[place]!r} holds a value that is not finite or below 0")
    return Spectra(names, wavelength_nm, values)


def _lines(path: str) -> list[str]:
    return read_file(path, max_bytes=MAX_TEXT_BYTES).decode("utf-8", "replace").splitlines()


def _row(path: str, number: int, text: str) -> list[float]:
    try:
        return [float(word) for word in re.split(r"[,\s]+", text.strip())]
    except ValueError:
        raise ValueError(f"{path}, line {number}: expected numbers, found {text.strip()[:40]!r}") from None


# -------------------------------------------------------------------------------------------------------------- cameras


def read_cameras(path: str) -> Spectra:
    """Camera sensitivities (n, w, 3) from the text file of Jiang et al., "What is the space of spectral sensitivity
    functions for digital color cameras?" (WACV 2013): a line with the camera's name, then three lines of numbers, for R, G
    and B; or from a ``.mat`` file of one camera with ``Estimated_CRF`` (3, 33), 400 to 720 nm.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another form; the message names the line.
    """
    if path.endswith(".mat"):
        return _camera_mat(path)
    lines = _lines(path)
    head = next((found for line in lines[:20] if (found := _JIANG_HEAD.search(line))), None)
    if head is None:
        raise ValueError(f"{path}: no line such as '400nm-720nm, step 10nm' among the first 20")
    low, high, step = map(int, head.groups())
    grid = np.arange(low, high + 1, max(step, 1), dtype=np.float64)
    start = next((n for n, line in enumerate(lines) if line.startswith("----")), len(lines))
    names: list[str] = []
    values: list[list[float]] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if not line.strip():
            continue
        if len(values) == 3 * len(names):
            names.append(" ".join(line.split()))
            continue
        values.append(_row(path, number, line))
        if len(values[-1]) != len(grid):
            raise ValueError(f"{path}, line {number}: {len(values[-1])} numbers, expected {len(grid)}")
    if len(values) != 3 * len(names):
        raise ValueError(f"{path}: camera {names[-1]!r} has {len(values) % 3} lines of numbers, expected 3")
    return _checked(path, tuple(names), grid, np.asarray(values).reshape(-1, 3, len(grid)).swapaxes(1, 2))


def _camera_mat(path: str) -> Spectra:
    try:
        (found,) = read_mat(read_file(path), ["Estimated_CRF"])["Estimated_CRF"]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if found.shape != (3, len(_CAMERA_MAT)) or found.dtype.kind not in "iuf":
        raise ValueError(f"{path}: expected 'Estimated_CRF' of shape (3, 33), found {found.dtype} {found.shape}")
    name = path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".mat")
    # Estimates are slightly below zero where a channel is insensitive; real sensitivities are not.
    return _checked(path, (name,), _CAMERA_MAT, np.maximum(np.asarray(found, dtype=np.float64).T[None], 0.0))


# ------------------------------------------------------------------------------------------------- surfaces and lights


def read_spectra(path: str) -> Spectra:
    """Reflectances or lights, one per row, (n, w).

    Three forms are read: one spectrum per line, numbers separated by commas or blanks, 101 values from 380 to 780 nm, as the
    reflectances of Barnard et al., "A data set for color research" (2002), are distributed; the same with a first line of
    wavelengths; and the authors' own form, one value per line with lines of ``#`` between spectra.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another form.
    """
    lines = _lines(path)
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"]
    widths = {len(row) for row in rows}
    if widths == {1} and len(rows) % len(_SFU_NM) == 0:
        table = np.asarray(rows).reshape(-1, len(_SFU_NM))
    elif len(widths) == 1:
        table = np.asarray(rows)
    else:
        raise ValueError(f"{path}: lines of {sorted(widths)} numbers: all should have the same number")
    grid = _SFU_NM
    if len(table) > 1 and table[0, 0] > 200 and (np.diff(table[0]) > 0).all():
        grid, table = table[0], table[1:]
    if table.shape[1] != len(grid):
        raise ValueError(f"{path}: {table.shape[1]} numbers a line; expected 101 without a first line of wavelengths")
    return _checked(path, tuple(str(number) for number in range(len(table))), grid, table)


# ------------------------------------------------------------------------------------------------ what colour-science ships


@functools.cache
def shipped_cameras() -> Spectra:
    """The camera sensitivities that colour-science ships, (2, 57, 3), at 5 nm from 400 to 680 nm."""
    import colour

    return _shipped(colour.MSDS_CAMERA_SENSITIVITIES.items(), np.arange(400.0, 681.0, 5.0))


@functools.cache
def shipped_lights() -> Spectra:
    """The lights of colour-science that cover 400 to 720 nm, at 5 nm: CIE illuminants and lamps, without duplicates."""
    import colour

    found = [*colour.SDS_ILLUMINANTS.items(), *colour.SDS_LIGHT_SOURCES.items()]
    return _shipped(found, np.arange(400.0, 721.0, 5.0), lambda value: np.maximum(value, 0) / value.max())


@functools.cache
def shipped_reflectances() -> Spectra:
    """The surfaces of colour-science's 24-patch charts, at 10 nm from 400 to 700 nm, without duplicate spectra."""
    import colour

    charts = colour.SDS_COLOURCHECKERS.items()
    found = [(f"{chart}: {patch}", one) for chart, patches in charts for patch, one in patches.items()]
    return _shipped(found, np.arange(400.0, 701.0, 10.0), lambda value: np.clip(value, 0, 1))


def _shipped(
    found: Iterable[tuple[str, Any]], grid: np.ndarray, finish: Callable[[np.ndarray], np.ndarray] = lambda value: value
) -> Spectra:
    """Spectra that cover the grid, without duplicates."""
    known: dict[str, np.ndarray] = {}
    for name, one in found:
        spectrum = Spectra(
            (name,), np.asarray(one.wavelengths, dtype=np.float64), np.asarray(one.values, dtype=np.float64)[None]
        )
        if spectrum.wavelength_nm[0] <= grid[0] and spectrum.wavelength_nm[-1] >= grid[-1]:
            value = finish(spectrum.at(grid)[0])
            if not any(np.allclose(value, other, atol=1e-9) for other in known.values()):
                known[str(name)] = value
    return _checked("colour-science", tuple(known), grid, np.stack(list(known.values())))
