"""python -m dear: the command `dear`."""

from dear_command import main

main()
