"""The program `pcp`."""

import sys

from ._pcp import main as _main


def main() -> int:
    """Runs the program with the words of the command line; returns its exit code."""
    return _main(["pcp", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
