"""Checks of the targets that a network is to predict."""

import numpy as np

from nvgd._support.errors import InputError


def real_targets(targets: np.ndarray) -> np.ndarray:
    """Targets with one or two axes that are numbers and differ from row to row."""
    if targets.dtype.kind not in "buif" or targets.ndim not in (1, 2):
        raise InputError(
            "y must hold one number, or one row of numbers, per row of the data, got "
            f"{targets.dtype} of shape {targets.shape}."
        )
    targets = targets.astype(np.float64)
    if not np.isfinite(targets).all():
        raise InputError("y must hold finite numbers only, got NaN or infinity: drop those rows.")
    is_constant = np.atleast_1d((targets == targets[:1]).all(axis=0))
    if is_constant.any():
        column = int(np.argmax(is_constant))
        where = f" in column {column}" if targets.ndim == 2 else ""
        raise InputError(
            f"y must vary, but it is constant{where} ({np.ravel(targets[0])[column]:g}): there is "
            "nothing to learn."
        )
    return targets


def class_labels(targets: np.ndarray) -> np.ndarray:
    """Labels 0 … K−1 as integers, not all the same."""
    if targets.ndim != 1 or targets.dtype.kind not in "buif":
        raise InputError(
            "y must hold one label 0 … K−1 per row for the categorical likelihood, got "
            f"{targets.dtype} of shape {targets.shape}: number the classes with "
            "numpy.unique(y, return_inverse=True)."
        )
    is_label = np.isfinite(targets) & (targets >= 0) & (targets == np.round(targets))
    if not is_label.all():
        raise InputError(
            f"y must hold labels 0 … K−1 only, got {targets[~is_label][0]}: number the classes "
            "with numpy.unique(y, return_inverse=True)."
        )
    if (targets == targets[0]).all():
        raise InputError(
            f"y must hold at least two classes, but every label is {int(targets[0])}: there is "
            "nothing to learn."
        )
    return targets.astype(np.int32)
