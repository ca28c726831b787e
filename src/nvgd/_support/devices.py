"""Placement of arrays on devices; no other module handles devices.

Particles are split along the mesh axis "particles", data rows along the axis "data" if the mesh has
one; everything else is replicated. JAX's partitioner turns sums over particles into sums across
devices. Computations over pairs of particles are the exception and go through `against_all`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from nvgd._support.errors import InputError, check_count

PARTICLES, DATA = "particles", "data"

Devices = int | Sequence[Any] | Mesh | None
Tree = TypeVar("Tree")


def device_mesh(
    particles: int | None = None, *, data: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """A mesh of devices for `sample(..., devices=)`, with the axes "particles" and "data".

        device_mesh(4, data=2)     # eight devices: a quarter of the particles and half of the rows

    Arguments:
        particles: number of devices along the particle axis; as many as fit if omitted.
        data: number of devices along the axis of data rows.
        devices: the devices to use; all devices of all processes if omitted.

    Examples:
        >>> mesh = nvgd.device_mesh(1)
        >>> mesh.size
        1
    """
    found = list(jax.devices() if devices is None else devices)
    check_count("data", data)
    if particles is None:
        particles = max(len(found) // data, 1)
    check_count("particles", particles)
    needed = particles * data
    if needed > len(found):
        raise InputError(
            f"a grid of {particles} × {data} devices needs {needed} of them, but there are "
            f"{len(found)}: ask for fewer, or, to try it on a processor, set XLA_FLAGS="
            f"--xla_force_host_platform_device_count={needed} before Python starts."
        )
    grid = np.array(found[:needed], dtype=object).reshape(particles, data)
    return Mesh(grid, (PARTICLES, DATA), axis_types=(AxisType.Auto,) * 2)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Placement of a run's arrays on a mesh; JAX's default placement if there is none."""

    mesh: Mesh | None = None

    @classmethod
    def of(cls, devices: Devices) -> "Placement":
        """The placement for a number of devices, a list of devices, or a mesh.

        None means the default device, or all devices if there are several processes.
        """
        if devices is None:
            return cls(device_mesh() if jax.process_count() > 1 else None)
        if isinstance(devices, Mesh):
            unknown = sorted(set(map(str, devices.axis_names)) - {PARTICLES, DATA})
            if unknown or PARTICLES not in devices.axis_names:
                raise InputError(
                    f"a mesh for devices= has the axis {PARTICLES!r} and may have {DATA!r}, got "
                    f"{devices.axis_names}: nvgd.device_mesh() makes one."
                )
            axis_types = (AxisType.Auto,) * len(devices.axis_names)
            return cls(Mesh(devices.devices, devices.axis_names, axis_types=axis_types))
        if isinstance(devices, int) and not isinstance(devices, bool):
            check_count("devices", devices)
            return cls(device_mesh(devices))
        if isinstance(devices, Sequence) and devices:
            are_devices = [isinstance(device, jax.Device) for device in devices]
            if all(are_devices):
                return cls(device_mesh(len(devices), devices=devices))
        raise InputError(
            f"devices must be a number, a list of jax.devices() or a mesh, got {devices!r}."
        )

    def size(self, axis: str) -> int:
        """Number of devices along an axis."""
        return 1 if self.mesh is None else dict(self.mesh.shape).get(axis, 1)

    def check(self, num_particles: int, num_rows: int | None, batch_size: int | None) -> None:
        """Refuse particles, data rows or batches that cannot be split evenly.

        Arguments:
            num_particles: number of particles.
            num_rows: number of data rows held as JAX arrays, or None.
            batch_size: rows per batch, or None.
        """
        if num_particles % self.size(PARTICLES):
            raise InputError(
                f"num_particles must be a multiple of the {self.size(PARTICLES)} devices they are "
                f"split over, got {num_particles}."
            )
        num_shares = self.size(DATA)
        if (num_rows or 0) % num_shares:
            raise InputError(
                f"the {num_rows} data rows cannot be split evenly over {num_shares} devices: "
                f"leave {(num_rows or 0) % num_shares} out, or give them as a np.memmap."
            )
        if (batch_size or 0) % num_shares:
            raise InputError(
                f"batch_size must be a multiple of the {num_shares} devices that data are split "
                f"over, got {batch_size}."
            )

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Context manager in which functions are traced with the mesh."""
        if self.mesh is None:
            yield
        else:
            with jax.set_mesh(self.mesh):
                yield

    def replicate(self, tree: Tree) -> Tree:
        """Replicate all arrays on every device."""
        return self._placed(tree, lambda _: PartitionSpec())

    def split_particles(self, tree: Tree, num_particles: int, dim: int) -> Tree:
        """Split the arrays that hold one row per particle; replicate the others."""
        return self._placed(tree, self._particle_specs(num_particles, dim))

    def split_rows(self, tree: Tree, rows: PyTree) -> Tree:
        """Split the arrays of `tree` that are leaves of `rows` by rows; replicate the others."""
        split = {id(leaf) for leaf in jax.tree.leaves(rows)}
        return self._placed(
            tree, lambda leaf: self._spec(DATA) if id(leaf) in split else PartitionSpec()
        )

    def split_batches(self, batches: PyTree, batch_size: int) -> PyTree:
        """Global arrays from the rows of several steps' batches that this process has read.

        `batch_part` says which rows a process reads.
        """
        if self.mesh is None:
            return batches
        sharding = NamedSharding(self.mesh, PartitionSpec(None, *self._spec(DATA)))

        def put(leaf: np.ndarray) -> jax.Array:
            shape = (len(leaf), batch_size, *leaf.shape[2:])
            return jax.make_array_from_process_local_data(sharding, leaf, shape)

        return jax.tree.map(put, batches)

    def batch_part(self, batch_size: int) -> slice:
        """The rows of a batch that this process has to read."""
        if self.mesh is None or jax.process_count() == 1:
            return slice(None)
        sharding = NamedSharding(self.mesh, self._spec(DATA))
        indices = sharding.addressable_devices_indices_map((batch_size,)).values()
        parts = [index[0] for index in indices if index is not None]
        firsts = [part.start or 0 for part in parts]
        ends = [batch_size if part.stop is None else part.stop for part in parts]
        return slice(min(firsts), max(ends))

    def constrain_particles(self, tree: Tree, num_particles: int, dim: int) -> Tree:
        """Under `jit`: constrain arrays to the sharding of `split_particles`."""
        if self.mesh is None:
            return tree
        return self._constrained(tree, self._particle_specs(num_particles, dim))

    def constrain_batch(self, batch: PyTree) -> PyTree:
        """Under `jit`: split a batch by rows along the data axis."""
        if self.mesh is None or self.size(DATA) == 1:
            return batch
        return self._constrained(batch, lambda _: self._spec(DATA))

    def gathered(self, tree: Tree) -> Tree:
        """Gather every array onto one device in each process."""
        if self.mesh is None:
            return tree

        def gather(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array):
                return leaf
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                data = gather(jax.random.key_data(leaf))
                return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                return jnp.asarray(np.asarray(leaf))
            from jax.experimental.multihost_utils import process_allgather

            return jnp.asarray(process_allgather(leaf, tiled=True))

        return jax.tree.map(gather, tree)

    def _spec(self, axis: str) -> PartitionSpec:
        return PartitionSpec(axis) if self.size(axis) > 1 else PartitionSpec()

    def _particle_specs(self, num_particles: int, dim: int) -> Callable[[Any], PartitionSpec]:
        shapes = ((num_particles, dim), (num_particles,), (num_particles, 1))

        def spec(leaf: Any) -> PartitionSpec:
            # Particle arrays are recognised by shape. A mistake changes the placement, never the
            # results.
            return self._spec(PARTICLES) if leaf.shape in shapes else PartitionSpec()

        return spec

    def _placed(self, tree: Tree, spec: Callable[[Any], PartitionSpec]) -> Tree:
        mesh = self.mesh
        if mesh is None:
            return tree

        def put(leaf: Any) -> Any:
            if not eqx.is_array(leaf):
                return leaf
            sharding = NamedSharding(mesh, spec(leaf))
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                data = jax.random.key_data(leaf)
                return jax.random.wrap_key_data(put(data), impl=jax.random.key_impl(leaf))
            host = np.asarray(leaf)
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return jax.tree.map(put, tree)

    def _constrained(self, tree: Tree, spec: Callable[[Any], PartitionSpec]) -> Tree:
        mesh = self.mesh
        assert mesh is not None
        return jax.tree.map(
            lambda leaf: (
                jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, spec(leaf)))
                if eqx.is_array(leaf)
                else leaf
            ),
            tree,
        )


def against_all(function: Callable[[Any, Any], PyTree], rows: Any, columns: Any) -> PyTree:
    """Evaluate `function(rows, columns)`, a sum over columns for each row, with split particles.

    Each device keeps its rows. The columns circulate among the devices in a ring, one shard at a
    time, so that no device ever holds all of them.

    Arguments:
        function: returns one sum over the given columns per row; it is called once per shard of
            columns, and the results are added.
        rows, columns: pytrees of arrays whose leading axis counts particles.
    """
    mesh = jax.sharding.get_abstract_mesh()
    number = dict(mesh.shape).get(PARTICLES, 1)
    if number == 1:
        return function(rows, columns)
    ring = [(i, (i + 1) % number) for i in range(number)]

    def local(rows: Any, columns: Any) -> PyTree:
        def turn(_: Any, carry: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
            total, held = carry
            total = jax.tree.map(jnp.add, total, function(rows, held))
            return total, jax.lax.ppermute(held, PARTICLES, ring)

        shapes = jax.eval_shape(function, rows, columns)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.fori_loop(0, number, turn, (nothing, columns))[0]

    split = PartitionSpec(PARTICLES)
    return jax.shard_map(
        local, in_specs=(split, split), out_specs=split, axis_names={PARTICLES}, check_vma=False
    )(rows, columns)


def own_devices() -> Devices:
    """Devices for a run that this process does on its own."""
    return None if jax.process_count() == 1 else jax.local_devices()[:1]


def is_split() -> bool:
    """Under `jit`: whether particles are split over devices."""
    return PARTICLES in jax.sharding.get_abstract_mesh().axis_names


def everywhere(values: jax.Array) -> jax.Array:
    """Under `jit`: replicate a small array on every device."""
    if not is_split():
        return values
    return jax.lax.with_sharding_constraint(values, PartitionSpec())
