"""Files for people: summaries, logs, tables, the final report; nothing reads them back.

Face: class_history, writer.
"""
