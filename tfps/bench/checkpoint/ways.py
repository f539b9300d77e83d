"""The ways of saving and restoring that `tfps bench checkpoint` compares."""

from __future__ import annotations

TFPS, STREAMED, TENSORFLOW = "tfps", "streamed", "tensorflow"
BESIDE = "beside"
WAYS = {
    TFPS: "tfps",
    STREAMED: "tfps, streamed",
    TENSORFLOW: "tf.train.Checkpoint",
}
TITLES = {**WAYS, BESIDE: "tfps, beside training"}
SAVE, RESTORE = "save", "restore"
