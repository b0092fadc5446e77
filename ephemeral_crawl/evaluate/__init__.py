"""A user's own fleet under a budget: which policy collects how much?"""
