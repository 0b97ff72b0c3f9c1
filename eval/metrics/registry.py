"""Metrics that can be named in settings, and the input that each is computed from."""

from __future__ import annotations

from ...curation.registry import Registry

_HERE = "benchwright.eval.metrics"

_OF_MATRICES = {
    "acc_lower_triangle_mean": f"{_HERE}.clear:acc_lower_triangle_mean",
    "backward_forgetting": f"{_HERE}.class_incremental:backward_forgetting",
    "bwt_below_diagonal_mean": f"{_HERE}.clear:bwt_below_diagonal_mean",
    "final_accuracy": f"{_HERE}.class_incremental:final_accuracy",
    "final_minus_diagonal": f"{_HERE}.order_sensitivity:final_minus_diagonal",
    "forgetting_from_best": f"{_HERE}.order_sensitivity:forgetting_from_best",
    "fwt_above_diagonal_mean": f"{_HERE}.clear:fwt_above_diagonal_mean",
    "in_domain_diagonal_mean": f"{_HERE}.clear:in_domain_diagonal_mean",
    "next_domain_superdiagonal_mean": f"{_HERE}.clear:next_domain_superdiagonal_mean",
}
_OF_CONFUSION = {
    "accuracy": f"{_HERE}.confusion:accuracy",
    "matthews_correlation": f"{_HERE}.confusion:matthews_correlation",
    "normalised_mutual_information": f"{_HERE}.confusion:normalised_mutual_information",
}
_OF_LABEL_SETS = {
    "exact_match": f"{_HERE}.label_sets:exact_match",
    "jaccard_similarity": f"{_HERE}.label_sets:jaccard_similarity",
    "label_recall": f"{_HERE}.label_sets:label_recall",
    "precision_weighted_jaccard": f"{_HERE}.label_sets:precision_weighted_jaccard",
}

METRICS = Registry(
    "metric",
    {**_OF_MATRICES, **_OF_CONFUSION, **_OF_LABEL_SETS},
    fits={
        **dict.fromkeys(_OF_MATRICES, "matrix of accuracies"),
        **dict.fromkeys(_OF_CONFUSION, "confusion of labels"),
        **dict.fromkeys(_OF_LABEL_SETS, "overlaps of label sets"),
    },
)
"""Plain functions of numpy arrays; the name says the definition."""

OF_STREAMS = METRICS.only(*_OF_MATRICES, *_OF_CONFUSION)
"""Metrics for streams whose samples have one label."""

OF_LABEL_SET_STREAMS = METRICS.only(*_OF_LABEL_SETS)
"""Metrics for streams whose samples have sets of labels."""

OF_ORDERS = METRICS.only(*_OF_MATRICES)
"""Metrics for trainings on several orders of tasks."""
