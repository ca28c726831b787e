#!/bin/sh
# Install the wheel $2 with its run-time dependencies only, in an empty environment of the interpreter $1, and use it.
set -eu
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$1" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$2"
cd "$environment"
bin/python - <<'PROGRAM'
import nvgd

posterior = nvgd.sample(nvgd.densities.Banana().log_density, dim=2)
assert posterior.diagnose().verdict == "converged"
posterior.save("banana.npz")
print(nvgd.load("banana.npz").summary())
PROGRAM
bin/python -m nvgd --version
printf 'def log_density(x):\n    return -0.5 * (x**2).sum()\n' > model.py
bin/python -m nvgd sample model.py:log_density --dim 2 --num-steps 500 --out results > /dev/null
test -s results/report.html
