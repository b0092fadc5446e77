"""The live scheduler on a recorded log, item by item, against the rules of feed readers in use."""
