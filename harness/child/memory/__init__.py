"""Memory that the oracle shares with a runner: inputs go one way, outputs the other."""
