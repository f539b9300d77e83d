"""`tfps.ParameterServerStrategy` and `tfps.ClusterCoordinator`, and the parts they consist of."""

from tfps.keras_backend import check_backend

check_backend()
