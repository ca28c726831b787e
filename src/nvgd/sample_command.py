"""`nvgd sample model.py:name`: a posterior from a file, without writing a program."""

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

import nvgd
from nvgd.errors import InputError, check_count, first_line
from nvgd.files import output_directory, write_atomically
from nvgd.flow import ParticleFlow
from nvgd.frontends import from_numpyro, from_pymc
from nvgd.methods import NVGD, SVGD, ULA
from nvgd.posterior import Posterior
from nvgd.processes import ends_together, is_first_process, join
from nvgd.reports import Frames, write_report
from nvgd.sampling import sample
from nvgd.sharding import Devices, device_mesh
from nvgd.target import Target

# Steps between two frames of the report's film, at most.
FRAME_EVERY = 25

FLOWS: dict[str, Callable[..., ParticleFlow]] = {"nvgd": NVGD, "svgd": SVGD, "ula": ULA}


@dataclasses.dataclass(frozen=True)
class Sample:
    """Sample a model of your own: prints summary and verdict, writes particles and a report."""

    model: Annotated[Positional[str], arg(metavar="FILE.py:NAME")]
    """A log density (with --dim), a NumPyro model without arguments, a PyMC model
    or an nvgd.Target."""
    out: Path = Path("nvgd-results")
    """Directory for report.html, posterior.npz, summary.txt, diagnosis.json, three figures, and the
    checkpoints from which the same command goes on after an interruption."""
    dim: int | None = None
    """Length of the vector that a log density takes."""
    method: Literal["nvgd", "svgd", "ula"] = "nvgd"
    """How to sample."""
    step_size: float | None = None
    """ε; the method's own if omitted."""
    num_particles: int = 100
    """Particles."""
    num_steps: int | Literal["auto"] = 1000
    """Steps, each one gradient a particle; auto: until the particles have come to rest."""
    max_steps: int | None = None
    """With --num-steps auto: at the most; 10,000 if omitted."""
    num_replicates: int = 0
    """Further runs from other starts that the verdict compares with."""
    initial: Literal["prior", "laplace"] | None = None
    """Where particles start; as the model's package does, or N(0, I), if omitted."""
    seed: int = 0
    """The same seed gives the same particles."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; one a minute if omitted."""
    devices: int | None = None
    """Devices to split particles and data over; one if omitted, all with several processes."""
    data_devices: int = 1
    """How many shares the data rows are split into; particles are split over the rest."""
    coordinator: str | None = None
    """HOST:PORT of process 0, for a run of several processes."""
    num_processes: int | None = None
    """How many processes take part; each is started with the same command but for its number."""
    process_id: int | None = None
    """The number of this process, from 0."""


def run(command: Sample) -> Posterior:
    """Load, sample; the first process prints and writes."""
    join(command.coordinator, command.num_processes, command.process_id)
    with ends_together():
        return _run(command)


def _run(command: Sample) -> Posterior:
    target = _target(_loaded(command.model), command)
    out = output_directory(command.out)
    kind = FLOWS[command.method]
    frames = Frames(target, out / "frames.npz")
    frame_every = FRAME_EVERY
    if command.num_steps != "auto":
        frame_every = int(min(max(command.num_steps // 50, 1), FRAME_EVERY))
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
        checkpoint=out / "checkpoints",
        checkpoint_every=(
            timedelta(minutes=1) if command.checkpoint_every is None else command.checkpoint_every
        ),
        devices=_devices(command),
    )
    if not is_first_process():
        return posterior
    frames.write()
    summary = posterior.summary()
    diagnosis = posterior.diagnose(num_replicates=command.num_replicates)
    text = f"{summary}\n\n{posterior.status}\n\n{diagnosis}"
    print(text)
    data = json.dumps(diagnosis.to_dict(), indent=1)
    write_atomically(out / "summary.txt", lambda path: path.write_text(text + "\n"))
    write_atomically(out / "diagnosis.json", lambda path: path.write_text(data + "\n"))
    posterior.save(out / "posterior.npz")
    settings = {**dataclasses.asdict(command), "version": nvgd.__version__}
    film = frames.film(posterior.num_steps)
    write_report(out / "report.html", posterior, summary, diagnosis, settings, film)
    for name in ("marginals", "pairs", "history"):
        figure = posterior.plot(name)
        write_atomically(out / f"{name}.png", lambda path, f=figure: f.savefig(path, dpi=150))
    print(f"written to {out}")
    return posterior


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
    """The object that FILE.py:NAME refers to."""
    path, separator, name = reference.rpartition(":")
    if not separator or not path.endswith(".py"):
        raise InputError(f"model must be given as FILE.py:NAME, got {reference!r}.")
    file = Path(path).resolve()
    if not file.is_file():
        raise InputError(f"model must name a file that exists, got {path!r}.")
    # A name of its own: the file may be called like a package.
    spec = importlib.util.spec_from_file_location(f"_nvgd_model_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As when the file is imported: dataclasses, for one, look their module up.
    sys.modules[spec.name] = module
    # As when the file is run: its neighbours can be imported.
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
    # Without importing PyMC: an object of its class cannot be there unless the file did so.
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
    if "numpyro" not in sys.modules:
        raise InputError(
            f"{command.model} needs --dim, the length of the vector that the log density takes."
        )
    return from_numpyro(loaded)
