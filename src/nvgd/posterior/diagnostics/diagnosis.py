"""The diagnosis of a run: verdict, reason, advice and checks."""

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any, Literal

from nvgd._support.tables import align
from nvgd.posterior.diagnostics.checks import Check

Verdict = Literal[
    "converged", "not yet", "variance too small", "multimodal disagreement", "diverged", "improper"
]

# Columns of the sentences, as text.
WIDTH = 80


@dataclasses.dataclass(frozen=True, repr=False)
class Diagnosis:
    """Verdict on whether a run worked; `print` shows it as text, `to_dict` returns the data.

    Attributes:
        verdict: "converged", "not yet", "variance too small", "multimodal disagreement",
            "diverged" or "improper".
        reason: why the verdict was reached.
        advice: what to do next.
        checks: every measure by name, with its standard error and expected value.
        cautions: limitations of the checks in this run.

    Examples:
        >>> banana = nvgd.densities.Banana()
        >>> short = nvgd.sample(banana.log_density, nvgd.ULA(0.01), dim=2, num_steps=10)
        >>> diagnosis = short.diagnose()
        >>> diagnosis.verdict
        'not yet'
    """

    verdict: Verdict
    reason: str
    advice: str
    checks: Mapping[str, Check]
    cautions: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the verdict is "converged"."""
        return self.verdict == "converged"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self) | {
            "checks": {name: dataclasses.asdict(check) for name, check in self.checks.items()}
        }

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The checks as a table: measure, value ± error, expected, alarm."""
        rows = []
        for name, check in self.checks.items():
            value = f"{check.value:.3g}"
            if check.error is not None:
                value += f" ± {check.error:.2g}"
            label = f"{name} ({check.where})" if check.where else name
            rows.append((label, value, check.expected, "alarm" if check.is_alarm else ""))
        return rows

    def __repr__(self) -> str:
        sentences = [f"{self.verdict}: {self.reason}", self.advice, *self.cautions]
        wrapper = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
        parts = [wrapper.fill(text) for text in sentences]
        if self.checks:
            rows = [("", "value", "expected", ""), *self.rows()]
            width = max(len(expected) for _, _, expected, _ in rows)
            # Numbers to the right, words to the left.
            rows = [(name, value, words.ljust(width), alarm) for name, value, words, alarm in rows]
            parts += ["", align(rows)]
        return "\n".join(parts)
