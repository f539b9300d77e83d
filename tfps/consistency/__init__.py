"""Rules for issuing, admitting and counting work: tickets, clocks, modes.

Decisions are written once, in plain arithmetic (`ledger`). They run on Python integers in tests and
on tensors inside the servers' functions (`server_ledger`).
"""
