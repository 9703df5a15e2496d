#!/bin/sh
# Writes constraints/ anew from pyproject.toml: each package in its newest version that fits, with the hashes of all its
# files, for Linux and macOS and every Python that Penstock supports. No addresses: it works with any registry.
#
# Needs .venv-dev (make dev).
set -eu
cd "$(dirname "$0")/.."

compile() {
    file=$1
    shift
    echo "upgrade: constraints/$file.txt"
    .venv-dev/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
        --custom-compile-command "make upgrade" --output-file "constraints/$file.txt" "$@"
}

compile penstock pyproject.toml --extra gpu --extra local --extra otel --extra postgres --extra rag --extra ray --extra ui \
    --group bench --group build --group dev --group docs
compile researcher --group researcher
compile litellm-proxy --group litellm-proxy
