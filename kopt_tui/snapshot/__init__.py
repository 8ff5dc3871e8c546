"""From the journal to what a screen shows: the reader thread, the builder, the frozen Snapshot.

Face: snapshot (Snapshot and its rows), feed (Feed), phrases, device_sampler.
"""
