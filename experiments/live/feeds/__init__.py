"""The reference crawl: sixty feeds over real HTTP on loopback, in accelerated time."""
