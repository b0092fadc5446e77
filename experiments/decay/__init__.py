"""What the Whittle index loses where it assumes another decay function than the true one."""
