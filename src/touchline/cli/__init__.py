"""The command line: parses, calls, prints. Whatever it does, one Python call does.

`app` lists the verbs (`COMMANDS`) and turns errors into exit codes; every verb is a file that holds
one function. To add a verb, add such a file and name its function in `COMMANDS`.
"""

import signal
from importlib import import_module


def main() -> None:
    """Run the command line and exit with its code."""
    # Ctrl-C while modules load ends the process plainly, instead of a traceback of Python's own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module("touchline.cli.app").main()


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code instead of leaving Python."""
    return int(import_module("touchline.cli.app").run(arguments))
