"""What a benchmark target declares: its command, metrics, correctness rule and config classes.

Face: check_rule, command_line, command_target, metric_units, row_classes, validate.
"""
