"""DBBench: questions about a table, and changes to it, by SQL. AgentBench's task over SQLite or a MySQL server."""
