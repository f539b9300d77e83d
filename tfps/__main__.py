"""`python -m tfps` is the command `tfps`."""

from tfps.cli import main

if __name__ == "__main__":
    main(prog_name="tfps")
