"""Search spaces, trials, splits and plans."""
