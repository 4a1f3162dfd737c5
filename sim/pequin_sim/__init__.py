"""Pequin's host side: golden models, tool chain, runner, reports and the command line."""
