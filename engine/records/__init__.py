"""Files for people: summaries, logs, tables, the final report; no program reads them back.

Face: class_history, measured, present_limits, tip_promotion, writer.
"""
