"""Step-size schedules."""

from typing import Any

import equinox as eqx

from nvgd._support.errors import check_positive


class PolynomialDecay(eqx.Module):
    """The schedule ε_t = a (1 + t/b)^(−γ); equal settings share one compiled program."""

    initial: float
    offset: float
    power: float

    def __call__(self, step: Any) -> Any:
        """ε_t at step t."""
        return self.initial * (1 + step / self.offset) ** (-self.power)


def polynomial_decay(initial: float, offset: float = 1.0, power: float = 0.55) -> PolynomialDecay:
    """SGLD's step sizes ε_t = a (1 + t/b)^(−γ) (Welling and Teh, 2011).

    With ½ < γ ≤ 1 the sum of the step sizes diverges and the sum of their squares converges, so
    that the noise of the minibatches averages out.

    Arguments:
        initial: a, the first step size.
        offset: b, the number of steps before the decay sets in.
        power: γ.

    Examples:
        >>> schedule = nvgd.movers.polynomial_decay(0.1)
        >>> round(float(schedule(0)), 3)
        0.1
    """
    check_positive("initial", initial)
    check_positive("offset", offset)
    check_positive("power", power, zero_allowed=True)
    return PolynomialDecay(initial, offset, power)
