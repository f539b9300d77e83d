"""Private layer between tfps, TensorFlow and Keras: variables on servers, copies, and patches.

`tensorflow_private` is the only file of the package that imports ``tensorflow.python``;
`keras_patches` is the only file that patches Keras.
"""

from tfps.keras_backend import check_backend

check_backend()
