#!/bin/sh
# Makes .venv-NAME, which has the dependency group NAME of pyproject.toml and nothing of ours: a program that wants other
# versions than we do. tools/install-beside.sh researcher (1.4 GB) or litellm-proxy
#
# Needs .venv-dev (make dev), whose Python and uv it takes, and a package registry. CONSTRAINTS= (empty): the newest versions.
set -eu
cd "$(dirname "$0")/.."
name=$1
python=.venv-$name/bin/python

uv=.venv-dev/bin/uv
[ -x "$uv" ] || { echo "install-beside: .venv-dev has no uv; run make dev first" >&2; exit 1; }

if ! "$python" -c '' >/dev/null 2>&1; then
    rm -rf ".venv-$name"
    "$uv" venv --quiet --python .venv-dev/bin/python ".venv-$name"
fi
if [ "${CONSTRAINTS-default}" ]; then
    set -- --constraints "constraints/$name.txt" --build-constraints "constraints/$name.txt"
else
    set --
fi
# Compiled once here, or each of the first runs would compile a hundred packages on its own.
"$uv" pip install --compile-bytecode --python "$python" --group "$name" "$@"
