"""Patches `tf.train.Checkpoint.restore` to restore all slices of a variable, not only one."""

from __future__ import annotations

import functools
from typing import Any

from tfps.bridge import tensorflow_private as private


def patch_slice_restore() -> None:
    """Install the patch; a second call does nothing.

    TensorFlow saves the slices that `_serialize_to_tensors` returns, as documented. But restoring
    pairs names with tensors one by one, so a variable of several slices gets only the first.
    """
    kind = private.TrackableSaveable
    if getattr(kind, "_tfps_brings_all_slices", False):
        return
    kind._tfps_brings_all_slices = True
    original = kind.restore

    @functools.wraps(original)
    def restore(self: Any, restored_tensors: Any, restored_shapes: Any) -> Any:
        if len(self.specs) == len(self._local_names):
            return original(self, restored_tensors, restored_shapes)
        slices: dict[str, dict[str, Any]] = {}
        for spec, tensor in zip(self.specs, restored_tensors, strict=True):
            slices.setdefault(spec.name, {})[spec.slice_spec] = tensor
        restored = dict(zip(self._local_names, slices.values(), strict=True))
        return self._trackable._restore_from_tensors(
            {name: saved.get("", saved) for name, saved in restored.items()}
        )

    kind.restore = restore
