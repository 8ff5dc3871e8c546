"""The dashboard and the `kopt` command."""

__version__ = "0.1.0"
