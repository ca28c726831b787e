#!/bin/sh
# Set up .venv/inference_gym on the first call, then run the benchmark with the given arguments:
#   sh benchmarks/inference_gym/run.sh [--only NAME ...] [--seeds K] [--bare] ...
#   sh benchmarks/inference_gym/run.sh low_error [--only NAME ...] ...
set -eu
cd "$(dirname "$0")/../.."
environment=.venv/inference_gym
here=benchmarks/inference_gym
if [ ! -e "$environment/.ready" ] || [ "$here/requirements.txt" -nt "$environment/.ready" ]; then
    sh tools/make_environment.sh "${PYTHON:-python3}" "$environment"
    pip="$environment/bin/python -m pip install --quiet --disable-pip-version-check"
    $pip --requirement "$here/requirements.txt"
    $pip --no-deps --no-build-isolation --editable .
    touch "$environment/.ready"
fi
module=benchmarks.inference_gym
case "${1:-}" in
low_error | references)
    module=$module.$1
    shift
    ;;
esac
exec "$environment/bin/python" -m "$module" "$@"
