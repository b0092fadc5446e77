"""The reference crawls: over real HTTP on loopback, in accelerated time, and without sockets."""
