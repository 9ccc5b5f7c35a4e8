"""``python -m trlmath``: the command line."""

from trlmath.cli import main

if __name__ == "__main__":
    main()
