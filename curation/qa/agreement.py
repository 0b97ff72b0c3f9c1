"""How far annotators agree: Fleiss' kappa, and a table of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

Form = Literal["labels", "sensitive"]

_MIN_VOTES = 10
"""Workers with fewer are not flagged."""


def votes_kappa(votes: pa.Table, *, form: Form) -> float:
    """Fleiss' kappa of one form: agreement beyond chance among several raters (Fleiss, "Measuring nominal scale agreement
    among many raters", 1971). A category is one answer: Yes or No, or the exact set of classes chosen.

    Images may have unequal numbers of votes; then the form of Gwet (Handbook of Inter-Rater Reliability, 4th ed. 2014,
    ch. 2) is used, which is Fleiss' own where they are equal: the observed agreement is the mean, over the images with
    at least two votes, of the share of agreeing pairs; the share of a category is the mean over all images of its share there.

    Args:
        votes: ``votes.VOTES``.

    Returns:
        (P - P_e) / (1 - P_e), at most 1; 0 is what chance gives. NaN where no image has two votes, or where all votes name
        one category (P_e = 1).
    """
    cells = _answers(votes).filter(pl.col("form") == form).group_by("key", "answer").len("n").sort("key", "answer")
    items, categories = (cells[name].rank("dense").to_numpy().astype(np.int64) - 1 for name in ("key", "answer"))
    counts = cells["n"].to_numpy().astype(np.int64)
    ratings = np.bincount(items, weights=counts)
    several = ratings > 1
    if not several.any():
        return float("nan")
    agreeing = np.bincount(items, weights=counts * (counts - 1.0))
    observed = float(np.mean(agreeing[several] / (ratings[several] * (ratings[several] - 1))))
    shares = np.bincount(categories, weights=counts / ratings[items]) / len(ratings)
    expected = float(np.sum(shares**2))
    # All votes in one category: 1 - P_e is zero up to rounding, and kappa is not defined.
    return (observed - expected) / (1 - expected) if len(shares) > 1 else float("nan")


def worker_table(
    votes: pa.Table,
    *,
    gold: Mapping[str, str] | None = None,
    background: str = "",
) -> pa.Table:
    """One row a worker, those with the most label votes first.

    Args:
        votes: ``votes.VOTES``, those on gold questions included.
        gold: key -> right class of the gold questions; the background class means none of the above.
        background: the background class.

    Returns:
        ``worker``; ``num_labels``, ``num_sensitive``; ``agreement``: share of their label votes that equal the answer
        of more than half of the image's voters, over images where there is one; ``num_gold``, ``gold_right``,
        ``gold_accuracy``;
        ``yes_rate`` on the sensitive form; ``median_seconds`` of both forms; ``flags``: list of ``low_agreement``
        (below a half), ``low_gold`` (below 0.7) and ``fast`` (less than two seconds), each of those with ten votes or gold
        answers at least. Shares are in [0, 1], null where nothing was counted.
    """
    answers = _answers(votes)
    truth = pl.DataFrame(
        {"key": list(gold or {}), "_gold": ["" if name == background else name for name in (gold or {}).values()]},
        schema={"key": pl.String, "_gold": pl.String},
    )
    labels = answers.filter(pl.col("form") == "labels")
    per_answer = labels.group_by("key", "answer").len("_n")
    total = per_answer.group_by("key").agg(pl.col("_n").sum().alias("_total"))
    winners = per_answer.join(total, on="key").filter((2 * pl.col("_n") > pl.col("_total")) & (pl.col("_total") > 1))
    judged = labels.join(winners.select("key", pl.col("answer").alias("_majority")), on="key", how="left")
    judged = judged.join(truth, on="key", how="left").group_by("worker").agg(
        pl.len().alias("num_labels"),
        (pl.col("answer") == pl.col("_majority")).mean().alias("agreement"),
        pl.col("_gold").is_not_null().sum().alias("num_gold"),
        (pl.col("answer") == pl.col("_gold")).sum().alias("gold_right"),
        (pl.col("answer") == pl.col("_gold")).mean().alias("gold_accuracy"),
    )  # fmt: skip
    asked = answers.filter(pl.col("form") == "sensitive").group_by("worker").agg(
        pl.len().alias("num_sensitive"), (pl.col("answer") == "Yes").mean().alias("yes_rate")
    )  # fmt: skip
    times = answers.group_by("worker").agg(pl.col("seconds").median().alias("median_seconds"))
    table = times.join(judged, on="worker", how="left").join(asked, on="worker", how="left")
    table = table.with_columns(pl.col("num_labels", "num_sensitive", "num_gold", "gold_right").fill_null(0).cast(pl.Int64))
    rules = {
        "low_agreement": (pl.col("num_labels") >= _MIN_VOTES) & (pl.col("agreement") < 0.5),
        "low_gold": (pl.col("num_gold") >= _MIN_VOTES) & (pl.col("gold_accuracy") < 0.7),
        "fast": (pl.col("num_labels") + pl.col("num_sensitive") >= _MIN_VOTES) & (pl.col("median_seconds") < 2.0),
    }
    flags = pl.concat_list([pl.when(rule).then(pl.lit(name)) for name, rule in rules.items()]).list.drop_nulls()
    order = (
        "num_labels",
        "num_sensitive",
        "agreement",
        "num_gold",
        "gold_right",
        "gold_accuracy",
        "yes_rate",
        "median_seconds",
    )
    return (
        table.select("worker", *order, flags.alias("flags")).sort(["num_labels", "worker"], descending=[True, False]).to_arrow()
    )


def _answers(votes: pa.Table) -> pl.DataFrame:
    """Votes with ``answer``: ``Yes``, ``No``, or the classes chosen, joined by a control character ("" = none)."""
    frame = pl.DataFrame(pl.from_arrow(votes))
    yes_no = pl.when(pl.col("sensitive")).then(pl.lit("Yes")).otherwise(pl.lit("No"))
    answer = pl.when(pl.col("form") == "labels").then(pl.col("labels").list.join("\x1f")).otherwise(yes_no)
    return frame.select("key", "form", "worker", "seconds", answer.alias("answer"))
