"""`python -m regard`."""

from regard.cli import script

script()
