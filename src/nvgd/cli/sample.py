"""`nvgd sample FILE.py:NAME`: the posterior of a model in a Python file."""

import dataclasses
import importlib.util
import inspect
import json
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from nvgd._support.devices import Devices, device_mesh
from nvgd._support.errors import InputError, RunStoppedWarning, check_count, first_line
from nvgd._support.files import write_atomically
from nvgd._support.processes import ends_together, is_first_process, join, locked_together
from nvgd._support.version import __version__
from nvgd.cli.plot import CHECKPOINTS, POSTERIOR, write_figures
from nvgd.cli.report.advice import for_command_line
from nvgd.cli.report.frames import Frames
from nvgd.cli.report.page import write_report
from nvgd.flow.methods import NVGD, SVGD, ULA
from nvgd.flow.particle_flow import ParticleFlow
from nvgd.frontends.numpyro import from_numpyro
from nvgd.frontends.pymc import from_pymc
from nvgd.posterior.diagnostics.verdict import INTERRUPTED
from nvgd.posterior.posterior import Posterior
from nvgd.posterior.summary import MAX_ROWS
from nvgd.running.sampling import sample
from nvgd.targets.target import Target

REPORT = "report.html"
# Largest number of steps between two frames of the report's animation.
FRAME_EVERY = 25

FLOWS: dict[str, Callable[..., ParticleFlow]] = {"nvgd": NVGD, "svgd": SVGD, "ula": ULA}


@dataclasses.dataclass(frozen=True)
class Sample:
    """Sample your own model: print verdict and summary, write draws, figures and a report."""

    model: str = dataclasses.field(metadata={"metavar": "FILE.py:NAME"})
    """A log density (with --dim), a NumPyro model without arguments, a PyMC model or an
    nvgd.Target."""
    out: Path = Path("nvgd-results")
    """Directory for report.html, posterior.npz, summary.txt, diagnosis.json, three figures, and
    the checkpoints from which the same command continues an interrupted run."""
    dim: int | None = None
    """Length of the vector that a log density takes."""
    method: Literal["nvgd", "svgd", "ula"] = "nvgd"
    """Sampling method."""
    step_size: float | None = None
    """Step size ε; the method's default if omitted."""
    num_particles: int | None = None
    """Number of particles; if omitted, 256, or 100 in more than 200 dimensions."""
    num_steps: int | Literal["auto"] | None = None
    """Number of steps, with one gradient per particle and step; auto: until the chains have mixed
    (nvgd) or the particles have come to rest (svgd, ula). If omitted, auto for nvgd, 1,000 for svgd
    and ula."""
    max_steps: int | None = None
    """Limit for --num-steps auto; 10,000 if omitted."""
    num_replicates: int = 0
    """Further runs from other starting points, with which the verdict compares this run."""
    initial: Literal["prior", "laplace"] | None = None
    """Distribution of the starting points; the default of the model's package, or N(0, I), if
    omitted."""
    seed: int = 0
    """Random seed; the same seed gives the same particles."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; one checkpoint per minute if omitted."""
    devices: int | None = None
    """Devices to split particles and data over; if omitted, one, or all in a run of several
    processes."""
    data_devices: int = 1
    """Number of parts that the data rows are split into; each part has devices / data-devices
    devices for the particles."""
    coordinator: str | None = None
    """HOST:PORT of process 0, for a run of several processes."""
    num_processes: int | None = None
    """Number of processes; all are started with the same command except for --process-id."""
    process_id: int | None = None
    """Number of this process, from 0."""

    def __post_init__(self):
        # `nvgd.sample` checks the other settings before it writes anything.
        if self.num_particles is not None:
            check_count("num_particles", self.num_particles)
        check_count("num_replicates", self.num_replicates, minimum=0)


def run_sample(command: Sample) -> Posterior:
    """Load the model and sample it; only the first process prints and writes."""
    join(command.coordinator, command.num_processes, command.process_id)
    with ends_together():
        return _run(command)


def _run(command: Sample) -> Posterior:
    target = _target(_loaded(command.model), command)
    with locked_together(command.out):
        posterior, frames = _sampled(command, target)
        if is_first_process():
            _write_results(command, posterior, frames)
    return posterior


def _sampled(command: Sample, target: Target) -> tuple[Posterior, Frames]:
    kind = FLOWS[command.method]
    frames = Frames(target, command.out / "frames.npz")
    frame_every = FRAME_EVERY
    if isinstance(command.num_steps, int):
        frame_every = min(max(command.num_steps // 50, 1), FRAME_EVERY)
    with warnings.catch_warnings():
        # The status is printed with the results.
        warnings.simplefilter("ignore", RunStoppedWarning)
        try:
            posterior = sample(
                target,
                kind() if command.step_size is None else kind(command.step_size),
                num_particles=command.num_particles,
                num_steps=command.num_steps,
                max_steps=command.max_steps,
                initial=command.initial,
                seed=command.seed,
                metrics_every=frame_every,
                callback=frames,
                checkpoint=command.out / CHECKPOINTS,
                checkpoint_every=(
                    timedelta(minutes=1)
                    if command.checkpoint_every is None
                    else command.checkpoint_every
                ),
                devices=_devices(command),
            )
        except KeyboardInterrupt:
            has_checkpoint = any((command.out / CHECKPOINTS).glob("*"))
            raise KeyboardInterrupt(
                "interrupted; the same command continues the run from its last checkpoint."
                if has_checkpoint
                else "interrupted before the first step; the same command starts anew."
            ) from None
    if posterior.status.startswith(INTERRUPTED):
        frames.write()
        raise KeyboardInterrupt(
            f"interrupted after step {posterior.num_steps}; the same command continues the run."
        )
    return posterior, frames


def _write_results(command: Sample, posterior: Posterior, frames: Frames) -> None:
    out = command.out
    try:
        posterior.save(out / POSTERIOR)
        frames.write()
        summary = posterior.summary()
        diagnosis = for_command_line(posterior.diagnose(num_replicates=command.num_replicates))
        # The verdict first: a summary may have hundreds of rows.
        head = f"{posterior.status}\n\n{diagnosis}\n\n"
        print(head + summary.to_text(MAX_ROWS, rest="summary.txt has all"))
        text = head + summary.to_text()
        data = json.dumps(diagnosis.to_dict(), indent=1)
        write_atomically(out / "summary.txt", lambda path: path.write_text(text + "\n"))
        write_atomically(out / "diagnosis.json", lambda path: path.write_text(data + "\n"))
        settings = {**dataclasses.asdict(command), "version": __version__}
        film = frames.film(posterior)
        write_report(out / REPORT, posterior, summary, diagnosis, settings, film)
        write_figures(posterior, out)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted after the last step; the same command writes the rest of the results."
        ) from None
    print(f"\nResults written to {out}: open {out / REPORT}.")


def _devices(command: Sample) -> Devices:
    if command.data_devices == 1:
        return command.devices
    if command.devices is None:
        return device_mesh(data=command.data_devices)
    check_count("devices", command.devices)
    check_count("data_devices", command.data_devices)
    if command.devices % command.data_devices:
        raise InputError(
            f"devices must be a multiple of data_devices, {command.data_devices}, got "
            f"{command.devices}."
        )
    return device_mesh(command.devices // command.data_devices, data=command.data_devices)


def _loaded(reference: str) -> Any:
    """Run the file and return the object that FILE.py:NAME refers to."""
    path, separator, name = reference.rpartition(":")
    if not separator or not path.endswith(".py"):
        raise InputError(f"model must be given as FILE.py:NAME, got {reference!r}.")
    file = Path(path).resolve()
    if not file.is_file():
        raise InputError(f"model must name a file that exists, got {path!r}.")
    # The prefix keeps a file called numpyro.py, say, from hiding the package.
    spec = importlib.util.spec_from_file_location(f"_nvgd_model_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module that defines them.
    sys.modules[spec.name] = module
    # The file can import its neighbours, as if it were run as a script.
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} could not be run: {type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    if not hasattr(module, name):
        raise InputError(f"{path} defines nothing called {name!r}.")
    return getattr(module, name)


def _target(loaded: Any, command: Sample) -> Target:
    if isinstance(loaded, Target):
        return loaded
    # A PyMC or NumPyro model implies that its file has imported the package.
    pymc = sys.modules.get("pymc")
    if pymc is not None and isinstance(loaded, pymc.Model):
        return from_pymc(loaded)
    if not callable(loaded):
        raise InputError(
            f"{command.model} must be a function, a pymc.Model or an nvgd.Target, got a "
            f"{type(loaded).__name__}."
        )
    if command.dim is not None:
        return Target(loaded, dim=command.dim)
    if "numpyro" in sys.modules and not _needs_arguments(loaded):
        return from_numpyro(loaded)
    raise InputError(
        f"{command.model} needs --dim, the length of the vector that it takes, if it is a log "
        "density; for a NumPyro model with arguments, define `target = nvgd.from_numpyro(model, "
        "data)` in the file and sample FILE.py:target."
    )


def _needs_arguments(function: Callable) -> bool:
    """Whether the function cannot be called without arguments, as a log density cannot."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # ValueError: a function without a known signature
        return True
    return False
