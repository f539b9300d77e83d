"""The methods `strategy.pull`, `push`, `pull_rows` and `push_rows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.step_scope import record_tfps_errors
from tfps.strategy.primitives.primitives import Tensor


class PullAndPush:
    """Holds methods that `tfps.ParameterServerStrategy` copies one by one."""

    @tf.autograph.experimental.do_not_convert
    def pull(self: Any, names: Sequence[str] | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """Read parameters with one request per server; a server's values are of one moment.

        Use it with `push` for an update rule of your own, on the coordinator or in a scheduled
        function. On another process use `tfps.attach`.

        Args:
            names: the paths of Keras variables or names of raw ones; None: all of the scope.

        Returns:
            The values by name, with the variables' shapes and dtypes; and the version, the number
            of updates of each server (int64, shape ``[servers]``), to pass to a later `push`.
            They are arrays on the coordinator and tensors in a scheduled function.

        Raises:
            ConfigError: no variable of the scope has one of the names.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, tfps, tfps.testing
        >>> with tfps.testing.InProcessCluster(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         weight = keras.Variable([1.0, 2.0], name="w")
        ...     values, version = strategy.pull(["w"])
        ...     values["w"].tolist()
        [1.0, 2.0]
        """
        with record_tfps_errors():
            return self.primitives.pull(names)

    @tf.autograph.experimental.do_not_convert
    def push(
        self: Any,
        gradients: Mapping[str, Tensor],
        version: Tensor,
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Send gradients; each server applies its part as one atomic update.

        Args:
            gradients: the gradients by name, of the parameters' shapes and dtypes.
            version: the version that `pull` returned with the parameters from which the gradients
                were computed (int64, shape ``[servers]``).
            optimizer: a built Keras optimizer that applies them on the servers; None subtracts
                them: scale a gradient by your learning rate yourself.

        Returns:
            The new version (int64, shape ``[servers]``), and the staleness: the most updates that
            any server had applied since the pull (an integer scalar).

        Raises:
            ConfigError: no variable of the scope has one of the names.
            UnsupportedError: it is called in a scheduled function of a strategy whose workers wait
                for each other (on the coordinator it is an update by itself, whatever the mode); or
                a gradient for `tfps.optimizers.SparseUpdates` consists of rows: use `push_rows`.
            tf.errors.InvalidArgumentError: a server has not reached the version; servers that
                have reached it have applied their part.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, tfps, tfps.testing
        >>> with tfps.testing.InProcessCluster(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         weight = keras.Variable([1.0, 2.0], name="w")
        ...     values, version = strategy.pull(["w"])
        ...     version, staleness = strategy.push({"w": 0.5 * values["w"]}, version)
        ...     weight.numpy().tolist(), int(staleness)
        ([0.5, 1.0], 0)
        """
        with record_tfps_errors():
            return self.primitives.push(gradients, version, optimizer=optimizer)

    @tf.autograph.experimental.do_not_convert
    def pull_rows(self: Any, name: str, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Read some rows of a table with one request per server; a server's are of one moment.

        Only these rows travel, each distinct row once, even if its id is repeated.

        Args:
            name: the path of a Keras variable, or name of a raw one, with at least two axes.
            ids: the ids of the rows, a vector of integers in any order; ids may be repeated.

        Returns:
            The rows, one for each id (the table's dtype, shape ``[ids, ...]``), and the version
            (int64, shape ``[servers]``) to pass to a later `push_rows`: arrays on the coordinator,
            tensors in a scheduled function.

        Raises:
            ConfigError: no variable of the scope has the name, or it has no rows; ids are not a
                vector of integers; on the coordinator also if the table does not have an id.
            tf.errors.InvalidArgumentError: in a scheduled function, the table does not have an id.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, numpy as np, tfps, tfps.testing
        >>> with tfps.testing.InProcessCluster(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         table = keras.Variable(np.eye(4), name="table")
        ...     rows, version = strategy.pull_rows("table", [3, 0, 3])
        ...     rows.tolist()
        [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        """
        with record_tfps_errors():
            return self.primitives.rows.pull(name, ids)

    @tf.autograph.experimental.do_not_convert
    def push_rows(
        self: Any,
        name: str,
        ids: Tensor,
        gradients: Tensor,
        version: Tensor,
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Send gradients of some rows of a table; the servers update only those rows.

        Each server makes one atomic update, which raises its version like any other push, even if
        it has none of the rows. An optimizer updates the rows and their slots as
        `tfps.optimizers.SparseUpdates` would, without being wrapped in it: exactly as in Keras for
        SGD and Adagrad, and lazily for the others.

        Args:
            name: the path of a Keras variable, or name of a raw one, with at least two axes.
            ids: the ids of the rows, a vector of integers; gradients of a repeated id are summed.
            gradients: a row for each id (shape ``[ids, ...]``).
            version: the version that `pull_rows` returned with the rows (int64, shape
                ``[servers]``).
            optimizer: a built elementwise Keras optimizer that trains the table; None subtracts
                the gradients: scale them by your learning rate yourself.

        Returns:
            The new version, and the staleness: the most updates that any server had applied since
            the pull.

        Raises:
            ConfigError: no variable of the scope has the name, or it has no rows; ids, gradients
                or version have another shape or dtype; on the coordinator also if the table does
                not have an id; the optimizer does not train the table, or cannot update single
                rows.
            UnsupportedError: as for `push`; or the table's constraint does not work by rows.
            tf.errors.InvalidArgumentError: a server has not reached the version, and no server has
                applied anything; in a scheduled function, the table does not have an id.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, numpy as np, tfps, tfps.testing
        >>> with tfps.testing.InProcessCluster(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         table = keras.Variable(np.zeros([4, 2]), name="table")
        ...     ids = [3, 0, 3]
        ...     rows, version = strategy.pull_rows("table", ids)
        ...     version, staleness = strategy.push_rows("table", ids, rows - 1, version)
        ...     table.numpy().tolist()
        [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
        """
        with record_tfps_errors():
            return self.primitives.rows.push(name, ids, gradients, version, optimizer=optimizer)
