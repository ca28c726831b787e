"""What the estimators use of scikit-learn; one sentence if it is not installed."""

from nvgd._support.errors import MissingExtraError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
except ImportError as error:
    raise MissingExtraError(
        "nvgd.sklearn needs the package scikit-learn, which cannot be imported here: run "
        "`pip install 'nvgd[sklearn]'`."
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "validate_data",
]
