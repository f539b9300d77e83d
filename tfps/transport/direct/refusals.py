"""Refused peers in the log: a warning per address and reason, however often they come back."""

from __future__ import annotations

import logging
from collections import OrderedDict

# A scan from changing addresses must not fill the memory; the oldest may be logged again.
REMEMBERED_ADDRESSES = 1024
# A reason may quote what was received: garbage that changes must not fill the log.
REASONS_PER_ADDRESS = 4


class RefusalLog:
    """Logs a refusal as a warning the first time, for debugging after that.

    Args:
        log: of the module that refuses.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reasons: OrderedDict[str, set[str]] = OrderedDict()

    def refused(self, address: str, reason: str) -> None:
        """Log one refusal.

        Args:
            address: of the peer, without its port, which changes.
            reason: why.
        """
        reasons = self._reasons.setdefault(address, set())
        new = reason not in reasons and len(reasons) < REASONS_PER_ADDRESS
        if new:
            reasons.add(reason)
        if len(self._reasons) > REMEMBERED_ADDRESSES:
            self._reasons.popitem(last=False)
        level = logging.WARNING if new else logging.DEBUG
        self._log.log(level, "refused a connection from %s: %s", address, reason)
