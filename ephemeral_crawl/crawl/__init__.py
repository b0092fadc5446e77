"""A small crawler of feeds, driven by the live scheduler; imports and exports of its sources."""
