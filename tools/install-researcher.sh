#!/bin/sh
# Makes .venv-researcher, which has GPT-Researcher and nothing of ours: it brings a hundred packages (1.1 GB) in
# versions of its own. The `python` option of a researcher host names its interpreter.
#
# Needs .venv (make install), whose Python it takes, and a package registry.
set -eu
cd "$(dirname "$0")/.."

requirement='gpt-researcher>=0.15,<0.16'
python=.venv-researcher/bin/python

uv=uv
if ! command -v uv >/dev/null 2>&1; then
    uv=.venv/bin/uv
    [ -x "$uv" ] || { echo "install-researcher: there is no uv; run make install first" >&2; exit 1; }
fi

if ! "$python" -c '' >/dev/null 2>&1; then
    rm -rf .venv-researcher
    "$uv" venv --quiet --python .venv/bin/python .venv-researcher
fi
# Compiled once here, or each of the first runs would compile a hundred packages on its own.
"$uv" pip install --quiet --compile-bytecode --python "$python" "$requirement"
