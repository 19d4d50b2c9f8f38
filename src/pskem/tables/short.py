"""Rows with fewer fields than the header, which pandas fills with gaps and says nothing of."""

from __future__ import annotations

import csv

__all__ = ["ShortRows"]


class ShortRows:
    """Counts short rows of a text that comes in pieces, and remembers the line of the first.

    Rows that go over several lines are not looked at.
    """

    def __init__(self, separator: str, n_fields: int) -> None:
        self._separator, self._n_fields = separator, n_fields
        self._rest, self._quoted, self._line = "", False, 0
        self.count, self.first = 0, 0

    def feed(self, text: str) -> None:
        """Some text; none at the end."""
        text = self._rest + (text or "\n")
        held = text.endswith("\r")  # perhaps one half of a line break
        if "\r" in text:
            text = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n")
        end = text.rfind("\n") + 1
        text, self._rest = text[:end], text[end:] + "\r" * held
        n_lines = text.count("\n")
        # Rows with more fields are refused, so that with the right total none has fewer.
        whole = text.count(self._separator) == (self._n_fields - 1) * n_lines
        if not whole or self._quoted or '"' in text:
            for i, line in enumerate(text.split("\n")[:-1], self._line + 1):
                if self._fields(line) < self._n_fields:
                    self.count += 1
                    self.first = self.first or i
        self._line += n_lines

    def _fields(self, line: str) -> int:
        """Fields of a line, as far as can be told: enough, if it is empty or goes on."""
        before = self._quoted
        self._quoted ^= line.count('"') % 2 == 1
        if before or self._quoted or not line.strip():
            return self._n_fields
        return len(next(csv.reader([line], delimiter=self._separator, skipinitialspace=True)))
