"""Models to and from other tools."""
