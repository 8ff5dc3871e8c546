"""From the journal to what a screen shows: the reader thread, the builder, the frozen Snapshot.

Face: campaign_rows, candidate_view, device_sampler, event_words, feed, phrases, snapshot,
transcript_feed, verdict_words.
"""
