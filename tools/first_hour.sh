#!/bin/sh
# Does what README.md and docs/quickstart.md say, word for word, as a newcomer would: on a fresh clone, with an empty HOME
# and a PATH that has python3, make, git and the POSIX tools and nothing else. Checks what is printed, and counts the
# seconds from the clone to the first answer of a real model; downloads are counted apart.
#
#   tools/first_hour.sh [SECONDS [PORT]]   # fails when that takes longer; 60 unless given. PORT instead of the pages' 8787
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
python3 "$(dirname "$0")/first_hour.py" "$work" "${1:-60}" "${2:-8787}"
