"""The `penstock` command. Nothing is loaded for `--version` but the version, and little for a warm `agent call`."""

from __future__ import annotations

import sys


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from penstock.version import __version__

        print(f"penstock {__version__}")
        return 0
    if "agent" in arguments and "call" in arguments:
        from penstock.agents.quick.quick_call import run as call

        outcome = call(arguments)
        if isinstance(outcome, int):
            return outcome
        if outcome is not None:
            from penstock.cli.agent_call import finish

            return finish(outcome)
    from penstock.cli.app import main as run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
