"""The `kopt` command."""
