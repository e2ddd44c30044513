"""What ends "ibvexp vm" with one line."""


class Trouble(Exception):
    """A reason without a line break, and an exit status that no command has."""

    def __init__(self, reason, status=125):
        super().__init__(reason)
        self.status = status
