"""The ways of saving and restoring that `tfps bench checkpoint` compares."""

from __future__ import annotations

TFPS, STREAMED, TENSORFLOW = "tfps", "streamed", "tensorflow"
WAYS = {
    TFPS: "tfps",
    STREAMED: "tfps, streamed",
    TENSORFLOW: "tf.train.Checkpoint",
}
SAVE, RESTORE = "save", "restore"
