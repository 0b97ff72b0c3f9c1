"""Write synthetic YFCC100M metadata: the layout, field lengths and flaws of the real file, none of its data.

    python benchmarks/make_yfcc.py 2000000 /tmp/yfcc.tsv [--columns 23|25] [--broken 0.05] [--seed 0]

Two million lines of 25 columns are about 1.05 GB. As in the real file, some good lines are no use: 0.8 % are videos, 1 % have
``null`` for the capture time and 0.5 % were taken after they were uploaded. ``--broken`` adds malformed lines, every kind in
turn.
The same arguments give the same bytes (with the same polars and numpy).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl

CHUNK_LINES = 200_000
FIRST_UPLOAD, LAST_UPLOAD = 1_072_958_400, 1_398_729_600  # 2004-01-01 to 2014-04-29, in seconds since 1970
LICENCES = [
    ("Attribution-NonCommercial-NoDerivs License", "http://creativecommons.org/licenses/by-nc-nd/2.0/"),
    ("Attribution-NonCommercial-ShareAlike License", "http://creativecommons.org/licenses/by-nc-sa/2.0/"),
    ("Attribution-NonCommercial License", "http://creativecommons.org/licenses/by-nc/2.0/"),
    ("Attribution License", "http://creativecommons.org/licenses/by/2.0/"),
    ("Attribution-ShareAlike License", "http://creativecommons.org/licenses/by-sa/2.0/"),
    ("Attribution-NoDerivs License", "http://creativecommons.org/licenses/by-nd/2.0/"),
]
SYLLABLES = [consonant + vowel for consonant, vowel in zip("bcdfghjklmnprstvwxyz", "aeiouaeiouaeiouaeiou", strict=True)]


def broken_lines(columns: int) -> list[bytes]:
    """One malformed line of each kind, without its newline."""
    good = [b"1"] * columns
    return [
        b"\t".join(good[:-1]),
        b"\t".join([*good, b"extra"]),
        b"",
        b"\t".join([*good[:-2], b"\xff\xfe", b"0"]),
        b"\t".join([*good[:-2], b"a\0b", b"0"]),
        b"\t".join([b"not-a-number", b"not-a-number", *good[2:]]),
        b"no tabs at all",
    ]


def _texts(rng: np.random.Generator, count: int, mean_words: float, joiner: str) -> pl.Series:
    """A pool of URL-encoded texts from which the lines draw; lengths are geometric, some are empty."""
    words = ["".join(rng.choice(SYLLABLES, size=int(size))) for size in rng.integers(1, 6, 500)]
    words += ["caf%C3%A9", "%22quoted%22", "50%25", "a%2Cb"]
    lengths = rng.geometric(1 / (mean_words + 1), count) - 1
    drawn = [words[index] for index in rng.integers(0, len(words), int(lengths.sum())).tolist()]
    ends = np.cumsum(lengths).tolist()
    texts = [joiner.join(drawn[end - size : end]) for size, end in zip(lengths.tolist(), ends, strict=True)]
    return pl.Series(texts, dtype=pl.String)


def _hex(rng: np.random.Generator, digits: int) -> pl.Series:
    text = rng.bytes(65_536 * digits // 2).hex()
    return pl.Series([text[at : at + digits] for at in range(0, len(text), digits)])


def _pick(rng: np.random.Generator, lines: int, pool: pl.Series) -> pl.Series:
    return pool.gather(rng.integers(0, len(pool), lines))


def make_chunk(rng: np.random.Generator, first_line: int, lines: int, pools: dict[str, pl.Series]) -> pl.DataFrame:
    """``lines`` lines of 25 columns as strings and integers, in file order.

    Ids are unique and look shuffled: the line's number times a constant, modulo a larger number without a common factor.
    """
    number = np.arange(first_line, first_line + lines, dtype=np.int64)
    uploaded = rng.integers(FIRST_UPLOAD, LAST_UPLOAD, lines)
    taken = uploaded - 1 - rng.exponential(30 * 86_400, lines).astype(np.int64)
    taken = np.where(rng.random(lines) < 0.005, uploaded + rng.integers(0, 86_400, lines), taken)
    is_null, is_video = rng.random(lines) < 0.01, rng.random(lines) < 0.008
    licence = rng.choice(len(LICENCES), lines, p=[0.3, 0.3, 0.17, 0.15, 0.06, 0.02])
    pick = {name: _pick(rng, lines, pool) for name, pool in pools.items()}
    frame = pl.DataFrame(
        {
            "line": number,
            "id": (number * 6_700_417 + 1_234_567) % 13_999_999_981 + 1_000_000,
            "hash": _pick(rng, lines, pools["hex16"]) + _pick(rng, lines, pools["hex16"]),
            "taken": taken * 1000,
            "uploaded": uploaded,
            "lon": rng.random(lines) * 360 - 180,
            "lat": rng.random(lines) * 180 - 90,
            "server": rng.integers(1, 9000, lines),
            "farm": rng.integers(1, 10, lines),
            "video": is_video,
            **{name: pick[name] for name in ("uid", "nick", "device", "title", "text", "tags", "machine", "hex10", "hex10b")},
            "licence": pl.Series([name for name, _ in LICENCES]).gather(licence),
            "licence_url": pl.Series([url for _, url in LICENCES]).gather(licence),
        }
    )
    has_place = pl.Series(rng.random(lines) < 0.48)
    stamp = pl.col("taken").cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d %H:%M:%S") + ".0"
    return frame.select(
        "line",
        "id",
        "hash",
        "uid",
        "nick",
        pl.when(pl.Series(is_null)).then(pl.lit("null")).otherwise(stamp).alias("taken"),
        "uploaded",
        "device",
        "title",
        "text",
        "tags",
        "machine",
        pl.when(has_place).then(pl.col("lon").round(6)).alias("lon"),
        pl.when(has_place).then(pl.col("lat").round(6)).alias("lat"),
        pl.when(has_place).then(pl.lit(16)).alias("accuracy"),
        pl.format("http://www.flickr.com/photos/{}/{}/", "uid", "id").alias("page"),
        pl.format("http://farm{}.staticflickr.com/{}/{}_{}.jpg", "farm", "server", "id", "hex10").alias("url"),
        "licence",
        "licence_url",
        "server",
        "farm",
        "hex10",
        "hex10b",
        pl.when("video").then(pl.lit("mov")).otherwise(pl.lit("jpg")).alias("ext"),
        pl.col("video").cast(pl.Int8).alias("marker"),
    )


def make(lines: int, out: Path, *, columns: int = 25, broken: float = 0.0, seed: int = 0) -> int:
    """Write ``lines`` lines (good ones and broken ones together) and return the size in bytes."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    pools = {
        "uid": pl.Series([f"{number}@N{tail:02d}" for number, tail in rng.integers([10**7, 0], [10**8, 9], (20_000, 2))]),
        "nick": _texts(rng, 20_000, 1.5, "+"),
        "device": _texts(rng, 500, 3, "+"),
        "title": _texts(rng, 20_000, 3, "+"),
        "text": _texts(rng, 20_000, 9, "+"),
        "tags": _texts(rng, 20_000, 8, ","),
        "machine": _texts(rng, 2_000, 0.5, ","),
        **{name: _hex(rng, digits) for name, digits in (("hex10", 10), ("hex10b", 10), ("hex16", 16))},
    }
    kinds = broken_lines(columns)
    made = 0
    with out.open("wb") as file:
        for first in range(0, lines, CHUNK_LINES):
            count = min(CHUNK_LINES, lines - first)
            frame = make_chunk(rng, first, count, pools)
            frame = frame if columns == 25 else frame.drop("line", "hash")
            text = frame.write_csv(include_header=False, separator="\t", quote_style="never").encode()
            if broken:
                rows = text.split(b"\n")[:-1]
                for index in np.flatnonzero(rng.random(count) < broken):
                    rows[index] = kinds[made % len(kinds)]
                    made += 1
                text = b"\n".join(rows) + b"\n"
            file.write(text)
    return out.stat().st_size


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--columns", type=int, choices=(23, 25), default=25)
    parser.add_argument("--broken", type=float, default=0.0, help="share of malformed lines")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started = time.perf_counter()
    size = make(args.lines, args.out, columns=args.columns, broken=args.broken, seed=args.seed)
    print(f"{args.out}: {args.lines:,} lines, {size / 1e9:.2f} GB, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
