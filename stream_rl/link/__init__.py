"""Links between roles: codec, flow control (pure) and the ZeroMQ shell."""
