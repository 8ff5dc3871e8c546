"""What kopt needs of a machine, checked one by one."""
