"""What a benchmark target declares: its command, metrics, correctness rule and config classes.

Face: command_target (CommandTarget), validate, metric_units, check_rule, row_classes, command_line.
"""
