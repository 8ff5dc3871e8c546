"""The command `kopt` inside a slot: the program, and the engine's end of its socket.

`slot_kopt` is started as a program.

Face: passed_streams, screening_desk.
"""
