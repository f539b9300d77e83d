"""The private ground: server variables, worker-local copies, and the patches that Keras needs.

`tensorflow_private` is the only file of the package that imports ``tensorflow.python``;
`keras_patches` is the only file that patches Keras.
"""

from tfps.keras_backend import check_backend

check_backend()
