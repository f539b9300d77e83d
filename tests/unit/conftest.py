"""TensorFlow with room for the tasks of every `OneProcess` of these tests.

When this is imported, since test modules use TensorFlow while they are collected.
"""

from __future__ import annotations

from tfps.testing import OneProcess

OneProcess.reserve(workers=3, ps=2)
