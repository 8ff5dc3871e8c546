"""kopt for outside agents, by the Model Context Protocol: tools, resources and prompts.

Each tool runs one verb of the command line as a child process and returns the verb's JSON. No tool
approves, rejects, stops or raises a limit: a person does that.

Face: http, server, skill.
"""
