#!/bin/sh
# Gathers what Penstock needs on a machine with a GPU, PyTorch and no package registry: into .bench-gpu/site.
#
#   tools/gpu-wheels.sh [PYTHON_VERSION]         # that of the other machine; 3.12 unless given
#   …copy the checkout with .bench-gpu there, and on that machine:
#   PYTHONPATH=$PWD/src:$PWD/.bench-gpu/site python3 -m benchmarks.gpu
set -eu
cd "$(dirname "$0")/.."
rm -rf .bench-gpu/site
uv pip install --quiet --target .bench-gpu/site --python-version "${1:-3.12}" --only-binary :all: \
    'aiohttp>=3.12' 'filelock>=3.15' 'msgspec>=0.19' 'nvidia-ml-py>=12.535' 'pebble>=5.0.7' \
    'prometheus-client>=0.20' 'psutil>=6.0' 'watchfiles>=1.0'
du -sh .bench-gpu/site
