"""Errors that a user can cause and mend.

The command line prints the message of a `PequinError` as one line and exits with a non-zero
code; anything else is a bug and keeps its traceback. A message names the input, the rule and,
where there is one, the fix.
"""


class PequinError(Exception):
    """Base of every error with a message meant for the user."""


class ConfigError(PequinError, ValueError):
    """A configuration or a constructor argument breaks a rule."""


class InputError(PequinError, ValueError):
    """A file, an array or a command-line value breaks a rule."""


class ToolError(PequinError, RuntimeError):
    """An external tool is missing, too old, or failed."""
