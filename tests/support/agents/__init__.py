"""Workers and providers of models for tests: scripted, hostile, failing and mending ones."""
