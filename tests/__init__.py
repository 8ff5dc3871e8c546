"""Tests: folders mirror the rooms of engine, harness and kopt_tui."""
