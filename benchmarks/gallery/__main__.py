"""Films of NVGD, SVGD and Langevin dynamics on five targets, in one page without a server.

python -m benchmarks.gallery [--out DIRECTORY] [--targets NAME ...] [--num-particles N]
    [--num-steps N]
"""

import argparse
from pathlib import Path

import matplotlib as mpl

from benchmarks.gallery.page import Entry, draw, table, write_gallery
from benchmarks.gallery.running import FLOWS, best_film, exact_level
from benchmarks.gallery.targets import TARGETS
from nvgd._support.files import output_directory
from nvgd._support.tables import align


def main() -> None:
    """Run every method on every target, then write the page and the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/gallery"))
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--num-particles", type=int, default=150, metavar="N")
    parser.add_argument("--num-steps", type=int, default=1000, metavar="N")
    options = parser.parse_args()
    mpl.use("agg")
    out = output_directory(options.out)
    size = {"num_particles": options.num_particles, "num_steps": options.num_steps}
    entries = {}
    for name in options.targets:
        shown = TARGETS[name]
        films = {method: best_film(shown, method, **size) for method in FLOWS}
        entries[name] = Entry(films, exact_level(shown, options.num_particles))
        print(f"{name} done", flush=True)
    print(align(table(entries)))
    write_gallery(entries, out / "index.html", **size)
    draw(entries, out / "gallery.png")
    print(f"Wrote index.html and gallery.png to {out}.")


if __name__ == "__main__":
    main()
