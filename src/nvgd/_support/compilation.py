"""Compiled functions, whose programs are dropped from memory beyond a limit."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from nvgd._support.errors import is_tracing

# One program of a run takes about 1,400 of the 65,530 memory maps that Linux grants a process.
MOST_PROGRAMS = 16
# Most numbers in an array of a program that is compiled with the least effort.
SMALL = 16_384

# For the library's own programs, whose operations are many and small: most of the compilation time
# would go to optimising loops over a few hundred numbers, and to the 32 parts that a program is
# split into for threads.
EFFORT = "xla_backend_optimization_level"
QUICKLY = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_prefer_vector_width": 128,
    "xla_cpu_parallel_codegen_split_count": 1,
}

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")

_caches: list[Any] = []


def compiled(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """`eqx.filter_jit`, with programs that `make_room` can drop."""
    jitted = eqx.filter_jit(function)
    # Equinox has no public access to this cache. If a later version renames it, all programs are
    # kept, and the tests of `make_room` fail.
    cache = getattr(jitted, "_cached", None)
    if cache is not None:
        _caches.append(cache)
    return jitted


class Program:
    """`jax.jit` of a function whose first arguments are hashable constants, such as a `Form`.

    Arguments:
        function: called with the constants, then with pytrees of arrays.
        num_constants: number of constants.
        effort: XLA's optimisation level. With 1, programs of many small operations compile in half
            the time and are hardly slower; with 0, in an eighth of the time, for programs that run
            rarely. XLA's own choice if omitted.
    """

    def __init__(
        self, function: Callable[..., Any], num_constants: int, *, effort: int | None = None
    ):
        self._function, self._num_constants, self._effort = function, num_constants, effort
        self._jitted: Any = None

    def __call__(self, *args: Any) -> Any:
        """Compile the function at the first call with these constants and shapes, and call it."""
        if self._jitted is None:
            # Not earlier: asking for the options starts JAX's backend.
            self._jitted = jax.jit(
                self._function,
                static_argnums=tuple(range(self._num_constants)),
                compiler_options=None if self._effort is None else _options(self._effort),
            )
            _caches.append(self._jitted)
        return self._jitted(*args)


def quickly_compiled(
    function: Callable[Inputs, Output], *, runs_often: bool = False
) -> Callable[Inputs, Output]:
    """`compiled`, with the least optimisation, for programs that run once or twice in a run.

    Arguments:
        runs_often: for programs that run dozens of times: optimise a little for arrays beyond
            `SMALL`, which would take long.
    """

    def flat(form: Form, arrays: list[Any]) -> Any:
        return _called(function, *form.tree(arrays))

    # The name under which JAX lists the program.
    flat.__name__ = function.__name__
    programs = Program(flat, 1, effort=0), Program(flat, 1, effort=1)

    @functools.wraps(function)
    def call(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        if is_tracing():
            # Part of a larger program, which has its own options.
            return function(*args, **kwargs)
        form, arrays = Form.of((args, kwargs))
        is_large = runs_often and max(array.size for array in arrays) > SMALL
        return programs[is_large](form, arrays)

    return call


def _called(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


class Form:
    """The structure of a pytree and its leaves that are not arrays, hashed once.

    A program that is called thousands of times gets its arrays as a flat list, and this object for
    the rest: `eqx.filter_jit` would flatten a pytree of modules in every call. JAX keeps the form
    as long as the program, hence no arrays in it.
    """

    def __init__(self, dynamic_form: Any, static: PyTree):
        self._dynamic_form, self._static = dynamic_form, static
        leaves, static_form = jax.tree.flatten(static)
        self._key = (dynamic_form, tuple(leaves), static_form)
        self._hash = hash(self._key)

    @classmethod
    def of(cls, tree: PyTree) -> tuple["Form", list[Any]]:
        """The form of a pytree, and its arrays."""
        dynamic, static = eqx.partition(tree, eqx.is_array)
        arrays, dynamic_form = jax.tree.flatten(dynamic)
        return cls(dynamic_form, static), [_strongly_typed(array) for array in arrays]

    def tree(self, arrays: list[Any]) -> PyTree:
        """The pytree with these arrays."""
        return eqx.combine(jax.tree.unflatten(self._dynamic_form, arrays), self._static)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Form) and self._key == other._key)


def _strongly_typed(array: Any) -> Any:
    """The array without a weak type, with which JAX would compile its program a second time."""
    if not getattr(array, "weak_type", False):
        return array
    if isinstance(array, Tracer):
        return array.astype(array.dtype)
    # Unlike `jnp.asarray`, this compiles nothing.
    return jax.device_put(np.asarray(array))


def make_room() -> None:
    """Drop the compiled programs of functions that hold more than `MOST_PROGRAMS`.

    Every log density has its own programs, which JAX keeps until the process ends. Without this
    function, a process that samples from many targets in turn (cross-validation folds, simulated
    data sets) dies after about thirty of them, when it runs out of memory maps.
    """
    for cache in _caches:
        if cache._cache_size() > MOST_PROGRAMS:
            cache.clear_cache()


@functools.cache
def _options(effort: int) -> dict[str, Any]:
    """The options for this effort that this version of XLA knows."""

    known = {name: value for name, value in QUICKLY.items() if name in _known_names()}
    if EFFORT in _known_names():
        known[EFFORT] = effort
    return known


@functools.cache
def _known_names() -> frozenset[str]:
    def are_known(options: dict[str, Any]) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
        except (jax.errors.JaxRuntimeError, ValueError):
            return False
        return True

    wanted = {EFFORT: 0, **QUICKLY}
    if are_known(wanted):
        return frozenset(wanted)
    return frozenset(name for name, value in wanted.items() if are_known({name: value}))
