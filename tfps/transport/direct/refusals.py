"""Log refused peers: one warning per address and reason, also if they try again."""

from __future__ import annotations

import logging
from collections import OrderedDict

# A scan from many addresses must not fill the memory; the oldest may be logged again.
MAX_ADDRESSES = 1024
# A reason may quote received data: changing garbage must not fill the log.
REASONS_PER_ADDRESS = 4


class RefusalLog:
    """Logs a refusal as a warning the first time, and at debug level after that.

    Args:
        log: the logger of the module that refuses.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reasons: OrderedDict[str, set[str]] = OrderedDict()

    def log_refusal(self, address: str, reason: str) -> None:
        """Log one refusal.

        Args:
            address: the address of the peer, without its port, which changes.
            reason: the reason of the refusal.
        """
        reasons = self._reasons.setdefault(address, set())
        new = reason not in reasons and len(reasons) < REASONS_PER_ADDRESS
        if new:
            reasons.add(reason)
        if len(self._reasons) > MAX_ADDRESSES:
            self._reasons.popitem(last=False)
        level = logging.WARNING if new else logging.DEBUG
        self._log.log(level, "refused a connection from %s: %s", address, reason)
