#!/bin/sh
# Installs the Debian packages named as arguments, those that are missing, where that is allowed: as root, or
# with a sudo that asks for no password. A package whose command is on the PATH counts as installed.
#
# Status 0: all are there. 1: some are not, and stderr says what to do; the caller decides what that means.
set -u

missing=
for package in "$@"; do
    if ! command -v "$package" >/dev/null 2>&1 &&
        ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$'; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

refuse() {
    echo "system-packages: missing:$missing; $1" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || refuse "there is no apt-get here: install them with your own package manager"
sudo=
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || refuse "run: sudo apt-get install$missing"
    sudo=sudo
fi

# RUNLEVEL=1 keeps a package's service from being started where there is no systemd: we start what we need.
apt() {
    $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >&2
}

echo "system-packages: installing$missing" >&2
# shellcheck disable=SC2086  # the words of $missing are arguments of their own
apt install -y --no-install-recommends $missing 2>/dev/null && exit 0
# The lists of packages may be missing or old. Somebody else may be fetching them: then theirs do as well.
apt update || echo "system-packages: the lists of packages could not be fetched" >&2
# shellcheck disable=SC2086
apt install -y --no-install-recommends $missing || refuse "apt-get could not install them, for the reason above"
