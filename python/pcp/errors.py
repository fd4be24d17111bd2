"""Errors: what went wrong, and a hint what to do about it. They are what the program prints."""


class Error(Exception):
    """An error with its remedy.

    >>> e = UsageError("`k` is 0", "give a number from 1 on, or auto")
    >>> print(e)
    `k` is 0 (give a number from 1 on, or auto)
    >>> isinstance(e, ValueError), e.hint
    (True, 'give a number from 1 on, or auto')
    """

    message: str
    hint: str

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message, hint)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(Error, ValueError):
    """An argument or a setting is wrong."""


class DataError(Error, ValueError):
    """The data cannot be read or cannot be used."""


class FileError(Error, OSError):
    """A file cannot be read or written."""

    __str__ = Error.__str__


class TrainingError(Error, RuntimeError):
    """Training cannot continue."""
