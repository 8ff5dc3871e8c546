"""Parts of one evaluation: sources to audit, oracles, rings, slots and traces."""
