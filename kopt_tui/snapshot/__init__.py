"""From the journal to what a screen shows: the reader thread, the builder, the frozen Snapshot.

Face: device_sampler, feed, phrases, snapshot.
"""
