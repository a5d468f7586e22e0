"""``python -m intentctl``."""

from intentctl.cli import main

if __name__ == "__main__":
    main()
