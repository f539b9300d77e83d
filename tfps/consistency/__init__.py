"""When work is handed out, admitted and counted: tickets, clocks, modes.

Decisions are written once, in plain arithmetic (`ledger`), and run on Python integers in tests and
on tensors inside the servers' functions (`server_ledger`).
"""
