"""`python -m hames` is `hames`."""

from hames.cli import main

main()
