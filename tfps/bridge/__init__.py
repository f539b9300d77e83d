"""Private layer between tfps, TensorFlow and Keras: variables on servers, copies, and patches.

`private_places.toml` is the only file of the package that names modules of ``tensorflow.python``
and ``keras.src``; `keras_patches` is the only file that patches Keras.
"""

from tfps.keras_backend import check_backend

check_backend()
