#!/bin/sh
# Create the virtual environment $2 with the interpreter $1, or say in one sentence why not.
set -eu
python=$1
environment=$2

# A pyenv shim exists for every installed version but runs only the active ones: ask pyenv for the rest.
if ! "$python" -c '' 2>/dev/null && command -v pyenv >/dev/null 2>&1; then
    version=$(pyenv versions --bare 2>/dev/null | grep "^${python#python}\." | tail -n 1 || true)
    [ -z "$version" ] || python="$(pyenv prefix "$version")/bin/python"
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "make: PYTHON=$1 is not a working Python >= 3.11; install one and pass its path, as in 'make test PYTHON=/path/to/python3.12'." >&2
    exit 2
fi
echo "Setting up $environment (first time only, one to three minutes) ..."
rm -rf "$environment"
"$python" -m venv "$environment"
