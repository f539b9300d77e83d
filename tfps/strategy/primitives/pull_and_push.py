"""`strategy.pull` and `strategy.push`, as users see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.step_scope import errors_as_raised
from tfps.strategy.primitives.primitives import Tensor


class PullAndPush:
    """Methods of `tfps.ParameterServerStrategy`, which takes them over one by one."""

    @tf.autograph.experimental.do_not_convert
    def pull(self: Any, names: Sequence[str] | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """Read parameters: one request per server, all of a server's from one moment.

        Args:
            names: paths of Keras variables or names of raw ones; None: all of the scope.

        Returns:
            The values by name, and the version (int64, one number per server) that a later push
            shall name: arrays on the coordinator, tensors in a scheduled function.

        Raises:
            ConfigError: a name that no variable of the scope has.
            tf.errors.UnavailableError: a server is lost.

        Example:

        ```python
        values, version = strategy.pull(["w"])
        ```
        """
        with errors_as_raised():
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
            gradients: by name, of the parameters' shapes.
            version: what the pull answered that the gradients were computed from.
            optimizer: a built Keras optimizer that applies them on the servers; None subtracts
                them: scale a gradient by your learning rate yourself.

        Returns:
            The new version, and the staleness: the most updates that any server had applied since
            the pull.

        Raises:
            ConfigError: a name that no variable of the scope has.
            UnsupportedError: in a scheduled function of a strategy whose workers wait for each
                other; on the coordinator it is an update by itself, whatever the mode. Or rows of a
                gradient for `tfps.optimizers.RowUpdates`: `push_rows` takes them.
            tf.errors.InvalidArgumentError: a version that a server has not reached; others, which
                have, have applied their part.
            tf.errors.UnavailableError: a server is lost.

        Example:

        ```python
        version, staleness = strategy.push({"w": 0.1 * gradient}, version)
        ```
        """
        with errors_as_raised():
            return self.primitives.push(gradients, version, optimizer=optimizer)

    @tf.autograph.experimental.do_not_convert
    def pull_rows(self: Any, name: str, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Read some rows of a table: one request per server, all of a server's from one moment.

        Each distinct row travels once, whatever the number of its ids, and nothing else of the
        table does.

        Args:
            name: path of a Keras variable, or name of a raw one, with two axes at least.
            ids: of the rows, a vector of integers; in any order, and an id may come often.

        Returns:
            The rows, one for each id, and the version (int64, one number per server) that a later
            push shall name: arrays on the coordinator, tensors in a scheduled function.

        Raises:
            ConfigError: no variable of the scope has the name, or it has no rows; ids that are no
                vector of integers; on the coordinator also ids that the table does not have.
            tf.errors.InvalidArgumentError: in a scheduled function, ids that the table does not
                have.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, numpy as np, tfps, tfps.testing
        >>> with tfps.testing.OneProcess(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         table = keras.Variable(np.eye(4), name="table")
        ...     rows, version = strategy.pull_rows("table", [3, 0, 3])
        ...     rows.tolist()
        [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        """
        with errors_as_raised():
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
        """Send gradients of some rows of a table; the servers update those rows alone.

        On each server it is one atomic update, and a version like any other push, whether rows
        come there or not. With an optimizer the rows and their slots are updated as by
        `tfps.optimizers.RowUpdates`, which need not be around it: with Keras's numbers for SGD and
        Adagrad, and lazily for the others.

        Args:
            name: path of a Keras variable, or name of a raw one, with two axes at least.
            ids: of the rows, a vector of integers; gradients of an id that comes often are summed.
            gradients: a row for each id.
            version: what the pull answered that the gradients were computed from.
            optimizer: a built elementwise optimizer of Keras that trains the table; None subtracts
                the gradients: scale them by your learning rate yourself.

        Returns:
            The new version, and the staleness: the most updates that any server had applied since
            the pull.

        Raises:
            ConfigError: no variable of the scope has the name, or it has no rows; ids, gradients
                or a version of another shape or dtype; on the coordinator also ids that the table
                does not have; an optimizer that does not train the table, or cannot update some
                rows alone.
            UnsupportedError: as of `push`; or a constraint of the table that is not one of rows.
            tf.errors.InvalidArgumentError: a version that a server has not reached, and no server
                has applied anything; in a scheduled function, ids that the table does not have.
            tf.errors.UnavailableError: a server is lost.

        Example:

        >>> import keras, numpy as np, tfps, tfps.testing
        >>> with tfps.testing.OneProcess(workers=1, ps=2) as cluster:
        ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        ...     with strategy.scope():
        ...         table = keras.Variable(np.zeros([4, 2]), name="table")
        ...     ids = [3, 0, 3]
        ...     rows, version = strategy.pull_rows("table", ids)
        ...     version, staleness = strategy.push_rows("table", ids, rows - 1, version)
        ...     table.numpy().tolist()
        [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
        """
        with errors_as_raised():
            return self.primitives.rows.push(name, ids, gradients, version, optimizer=optimizer)
