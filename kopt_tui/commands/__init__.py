"""The verbs of the `kopt` command, one module each, imported only when used."""
