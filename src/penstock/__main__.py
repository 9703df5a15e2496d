"""The `penstock` command. Nothing is loaded for `--version` but the version."""

from __future__ import annotations

import sys


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from penstock.version import __version__

        print(f"penstock {__version__}")
        return 0
    from penstock.cli.app import main as run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
