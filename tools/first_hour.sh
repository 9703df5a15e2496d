#!/bin/sh
# Does what README.md and docs/quickstart.md say, word for word, as a newcomer would: on a fresh clone, with an empty HOME
# and a PATH that has python3, make, git and the POSIX tools and nothing else. Checks what is printed, and counts the
# seconds from the clone to the first answer of a real model; downloads are counted apart.
#
#   tools/first_hour.sh [SECONDS]          # fails when that takes longer; 60 unless given
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work/bin"

for tool in make git sh awk basename cat chmod cmp cp cut date dirname env expr find grep head id kill ln ls mkdir mktemp \
    mv ps pwd rm rmdir sed sleep sort tail tee touch tr uname uniq wc xargs; do
    ln -s "$(command -v "$tool")" "$work/bin/$tool"
done
# No link: a virtual environment made through a link would be one of the link.
python=$(python3 -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/bin/python3"
chmod +x "$work/bin/python3"

"$python" tools/first_hour.py "$work" "${1:-60}"
