"""Campaigns: generators of test cases that the quick tests and the soak share."""
