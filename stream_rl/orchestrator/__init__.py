"""The only owner of state: tasks, leases, ledger, judging stage, selection, delivery."""
