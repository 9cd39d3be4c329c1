"""The base of all errors that are told to the user as they are: one clear line, no traceback."""


class UserError(Exception):
    """Something that the user can mend; the message says what, where and what to do next."""
