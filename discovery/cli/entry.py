"""The installed command. A health check, asked every few seconds on a small CPU share, loads nothing but itself."""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["healthcheck"]:
        from discovery.cli.health import main as alone  # noqa: PLC0415 - either one or the other

        alone()
    else:
        from discovery.cli.app import main as whole  # noqa: PLC0415

        whole()


if __name__ == "__main__":
    main()
