"""Real processes: commands in forks, zygotes that tests share, supervisors, servers."""
