"""The private names that tfps uses: all that differs between versions of TensorFlow and Keras.

A place is a module, or ``module:name`` for a name in it. Where versions differ, the newest place is
first and the first that exists counts: a patch release may have parts of a later minor version, so
versions are not compared. `private_names` reads these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfps.tested_versions import list_known_releases

_PYTHON = "tensorflow.python"
_COORDINATOR = f"{_PYTHON}.distribute.coordinator.cluster_coordinator"
_BACKEND = "keras.src.backend.tensorflow"
_ADAPTERS = "keras.src.trainers.data_adapters"


@dataclass(frozen=True)
class Package:
    """The private names of a package that tfps uses.

    Args:
        title: the name of the package in messages.
        tested: the release of each minor version that was tested, newest first.
        paths: a name that tfps uses -> the places where versions have it, newest first.
        attributes: a name of ``paths`` -> the attributes that tfps uses of a module, a class or
            its instances.
        features: a name of ``paths`` that older versions lack -> the public feature that they
            lack with it. Only that feature is refused there.
        parameters: a function, by its place in ``attributes`` -> its first parameters, as tfps
            passes them.
    """

    title: str
    tested: tuple[str, ...]
    paths: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, ...]]
    features: dict[str, str]
    parameters: dict[str, tuple[str, ...]]


TENSORFLOW = Package(
    title="TensorFlow",
    tested=list_known_releases("tensorflow"),
    paths={
        # Modules.
        "atomic_function": (f"{_PYTHON}.eager.polymorphic_function.atomic_function",),
        "auto_control_deps": (f"{_PYTHON}.framework.auto_control_deps",),
        "cluster_coordinator": (_COORDINATOR,),
        "context": (f"{_PYTHON}.eager.context",),
        "control_flow_util_v2": (f"{_PYTHON}.ops.control_flow_util_v2",),
        "coordinator_context": (f"{_PYTHON}.distribute.coordinator.coordinator_context",),
        "distribute_lib": (f"{_PYTHON}.distribute.distribute_lib",),
        "distribute_utils": (f"{_PYTHON}.distribute.distribute_utils",),
        "executor": (f"{_PYTHON}.eager.executor",),
        "function_def_to_graph": (f"{_PYTHON}.framework.function_def_to_graph",),
        "gen_candidate_sampling_ops": (f"{_PYTHON}.ops.gen_candidate_sampling_ops",),
        "gen_random_ops": (f"{_PYTHON}.ops.gen_random_ops",),
        "lift_to_graph": (f"{_PYTHON}.eager.lift_to_graph",),
        "mirrored_run": (f"{_PYTHON}.distribute.mirrored_run",),
        "ops": (f"{_PYTHON}.framework.ops",),
        "polymorphic_function": (f"{_PYTHON}.eager.polymorphic_function.polymorphic_function",),
        "pywrap_tf_session": (f"{_PYTHON}.client.pywrap_tf_session",),
        "pywrap_tfe": (f"{_PYTHON}.pywrap_tfe",),
        "record": (f"{_PYTHON}.eager.record",),
        "resource_variable_ops": (f"{_PYTHON}.ops.resource_variable_ops",),
        "save_context": (f"{_PYTHON}.saved_model.save_context",),
        "saveable_object_util": (f"{_PYTHON}.training.saving.saveable_object_util",),
        "script_ops": (f"{_PYTHON}.ops.script_ops",),
        "strategy_v2": (f"{_PYTHON}.distribute.parameter_server_strategy_v2",),
        # Classes whose attributes are used.
        "AtomicFunction": (f"{_PYTHON}.eager.polymorphic_function.atomic_function:AtomicFunction",),
        "AutomaticControlDependencies": (
            f"{_PYTHON}.framework.auto_control_deps:AutomaticControlDependencies",
        ),
        "BaseResourceVariable": (f"{_PYTHON}.ops.resource_variable_ops:BaseResourceVariable",),
        "Closure": (f"{_COORDINATOR}:Closure",),
        "Cluster": (f"{_COORDINATOR}:Cluster",),
        "ClusterCoordinator": (f"{_COORDINATOR}:ClusterCoordinator",),
        "Context": (f"{_PYTHON}.eager.context:Context",),
        "CoordinatedClosureQueue": (f"{_COORDINATOR}:_CoordinatedClosureQueue",),
        "Dataset": ("tensorflow:data.Dataset",),
        "Function": (f"{_PYTHON}.eager.polymorphic_function.polymorphic_function:Function",),
        "Graph": ("tensorflow:Graph",),
        "OpError": ("tensorflow:errors.OpError",),
        "Operation": ("tensorflow:Operation",),
        "RemoteValueImpl": (f"{_COORDINATOR}:RemoteValueImpl",),
        "Session": ("tensorflow:compat.v1.Session",),
        "Worker": (f"{_COORDINATOR}:Worker",),
        "WorkerPreemptionHandler": (f"{_COORDINATOR}:WorkerPreemptionHandler",),
    },
    attributes={
        "atomic_function": ("RUNTIME_FUNCTION_REFS",),
        "auto_control_deps": ("AutomaticControlDependencies",),
        "cluster_coordinator": (
            "Closure",
            "ClosureInputError",
            "RemoteValue",
            "RemoteValueImpl",
            "WorkerPreemptionHandler",
            "_CoordinatedClosureQueue",
            "_RPC_ERROR_FROM_PS",
            "_is_ps_failure",
            "_is_worker_failure",
        ),
        "context": ("Context", "context"),
        "control_flow_util_v2": ("maybe_set_lowering_attr",),
        "coordinator_context": ("get_current_dispatch_context", "maybe_get_remote_value"),
        "distribute_lib": (
            "_CrossReplicaThreadMode",
            "ReplicaContext",
            "_get_default_replica_mode",
            "_pop_per_thread_mode",
            "_push_per_thread_mode",
        ),
        "distribute_utils": ("caching_scope_local",),
        "executor": ("new_executor",),
        "lift_to_graph": ("UnliftableError", "lift_to_graph"),
        "mirrored_run": ("_call_for_each_replica",),
        "ops": ("RegisterGradient", "colocate_with", "device", "get_default_graph"),
        "polymorphic_function": ("Function",),
        "pywrap_tf_session": ("TF_DeviceListIncarnation",),
        "pywrap_tfe": (
            "TFE_ContextListDevices",
            "TFE_GetContextId",
            "TF_DeleteDeviceList",
            "TF_DeviceListCount",
            "TF_DeviceListName",
        ),
        "record": ("record_operation", "stop_recording"),
        "resource_variable_ops": (
            "BaseResourceVariable",
            "ResourceVariable",
            "_set_handle_shapes_and_types",
            "handle_data_util.create_handle_data",
            "variable_accessed",
        ),
        "save_context": ("in_save_context",),
        "saveable_object_util": ("TrackableSaveable",),
        "script_ops": ("_py_funcs._funcs",),
        "strategy_v2": ("ParameterServerStrategyV2Extended",),
        "AtomicFunction": ("_cached_graph",),
        "AutomaticControlDependencies": ("__exit__", "_graph"),
        "BaseResourceVariable": ("_unique_id",),
        "Closure": ("_concrete_function", "execute_on"),
        "Cluster": (
            "_potential_ps_failures_count",
            "_potential_ps_failures_lock",
            "closure_queue",
            "failure_handler",
            "schedule",
            "workers",
        ),
        "ClusterCoordinator": ("_cluster",),
        "Context": ("_context_handle",),
        "CoordinatedClosureQueue": (
            "_cancellation_mgr",
            "_closures_queued_condition",
            "_inflight_closure_count",
            "_no_inflight_closure_condition",
            "_queue_free_slot_condition",
            "_queue_lock",
            "_should_process_closures",
            "_stop_waiting_condition",
            "_tagged_queue",
        ),
        "Dataset": (
            "_apply_debug_options",
            "_as_serialized_graph",
            "_functions",
            "_inputs",
            "_variant_tensor",
        ),
        "Function": ("__call__", "_clone", "_reduce_retracing"),
        "Graph": ("_get_function",),
        "OpError": ("_message",),
        "Operation": ("_add_control_input", "_id", "_set_attr", "_update_input"),
        "RemoteValueImpl": ("_copy_to_local", "_get_error", "_values"),
        "Session": ("_closed",),
        "Worker": (
            "_is_dead_with_error",
            "_on_worker_recovery",
            "create_resource",
            "device_name",
            "executor",
        ),
        "WorkerPreemptionHandler": (
            "_cluster_due_for_update_or_finish",
            "_cluster_update_lock",
            "_preemption_handler_thread",
            "_should_preemption_thread_run",
            "_validate_preemption_failure",
            "_worker_up_cond",
            "stop",
        ),
    },
    features={},
    parameters={
        "Closure.execute_on": ("self", "worker"),
        "Context.update_server_def": ("self", "server_def"),
    },
)

KERAS = Package(
    title="Keras",
    # In 3.11, LossScaleOptimizer does not build its inner optimizer: the numbers are different.
    tested=list_known_releases("keras"),
    paths={
        # Modules.
        "array_slicing": (f"{_ADAPTERS}.array_slicing",),
        "global_state": ("keras.src.backend.common.global_state",),
        "io_utils": ("keras.src.utils.io_utils",),
        "naming": ("keras.src.utils.naming",),
        "saving_lib": ("keras.src.saving.saving_lib",),
        "seed_generator": ("keras.src.random.seed_generator",),
        "serialization_lib": ("keras.src.saving.serialization_lib",),
        "traceback_utils": ("keras.src.utils.traceback_utils",),
        "tracking": ("keras.src.utils.tracking",),
        "trainer_module": (f"{_BACKEND}.trainer",),
        "tree": ("keras.src.tree",),
        # Functions and values.
        "clip_by_global_norm": ("keras.src.optimizers.base_optimizer:clip_by_global_norm",),
        "compute_fans": ("keras.src.initializers.random_initializers:compute_fans",),
        "concat": (f"{_BACKEND}.trainer:concat",),
        "get_data_adapter": (f"{_ADAPTERS}:get_data_adapter",),
        "max_steps_per_epoch": ("keras.src.backend.config:max_steps_per_epoch",),
        "unpack_x_y_sample_weight": (f"{_ADAPTERS}.data_adapter_utils:unpack_x_y_sample_weight",),
        # Classes.
        "ArrayDataAdapter": (f"{_ADAPTERS}.array_data_adapter:ArrayDataAdapter",),
        "BaseOptimizer": ("keras.src.optimizers.base_optimizer:BaseOptimizer",),
        "BatchNormalization": ("keras:layers.BatchNormalization",),
        "CallbackList": ("keras:callbacks.CallbackList",),
        "DataAdapter": (f"{_ADAPTERS}.data_adapter:DataAdapter",),
        "Embedding": ("keras:layers.Embedding",),
        "EpochIterator": ("keras.src.trainers.epoch_iterator:EpochIterator",),
        "H5IOStore": ("keras.src.saving.saving_lib:H5IOStore",),
        "Layer": ("keras:layers.Layer",),
        "LossScaleOptimizer": ("keras:optimizers.LossScaleOptimizer",),
        "ModelCheckpoint": ("keras:callbacks.ModelCheckpoint",),
        "MultiOptimizer": ("keras:optimizers.MultiOptimizer",),  # of 3.15
        "Optimizer": ("keras:optimizers.Optimizer",),
        "ProgbarLogger": ("keras:callbacks.ProgbarLogger",),
        "TFDatasetAdapter": (f"{_ADAPTERS}.tf_dataset_adapter:TFDatasetAdapter",),
        "TensorBoard": ("keras:callbacks.TensorBoard",),
        "TensorFlowTrainer": (
            f"{_BACKEND}.trainer:TensorFlowTrainer",
            f"{_BACKEND}.trainer:Trainer",  # from 3.16 on, its own; before, that of all backends
        ),
        "Variable": (
            f"{_BACKEND}.ops.core:Variable",  # from 3.16 on
            f"{_BACKEND}.core:Variable",
        ),
    },
    attributes={
        "saving_lib": ("H5IOStore", "is_memory_sufficient", "load_model"),
        "traceback_utils": ("_EXCLUDED_PATHS", "filter_traceback"),
        "trainer_module": ("TFEpochIterator",),
        "ArrayDataAdapter": ("_num_samples", "_shuffle"),
        "BatchNormalization": ("_moments",),
        "CallbackList": ("_async_test", "_async_train", "_progbar"),
        "Embedding": ("_embeddings", "call"),
        "EpochIterator": (
            "_current_iterator",
            "_epoch_iterator",
            "_get_iterator",
            "_interrupted_warning",
            "_num_batches",
            "_steps_seen",
            "catch_stop_iteration",
        ),
        "H5IOStore": (
            "__getitem__",
            "__setitem__",
            "_create_h5_group",
            "_h5_entry_group",
            "_h5_entry_initialized",
            "_h5_entry_path",
        ),
        "Layer": ("_flatten_layers", "_non_trainable_variables", "_seed_generators"),
        "LossScaleOptimizer": ("_common_apply", "_tf_apply", "apply"),
        "ModelCheckpoint": ("_should_save_on_batch",),
        "MultiOptimizer": ("_optimizer_map", "apply"),
        "Optimizer": (
            "_all_reduce_sum_gradients",
            "_check_variables_are_known",
            "_clip_gradients",
            "_distribution_strategy",
            "_exclude_from_weight_decay_cache",
            "_get_variable_index",
            "_iterations",
            "_learning_rate",
            "_trainable_variables",
            "_trainable_variables_indices",
            "_use_weight_decay",
            "_var_key",
            "_variables",
            "apply",
            "build",
            "save_own_variables",
        ),
        "ProgbarLogger": ("_called_in_fit",),
        "TensorBoard": ("_global_train_batch", "_val_writer"),
        "TensorFlowTrainer": (
            "_compile_config",
            "_compile_loss",
            "_compile_metrics",
            "_distribute_strategy",
            "_maybe_symbolic_build",
            "_symbolic_build",
            "distribute_strategy",
            "make_test_function",
            "make_train_function",
        ),
        "Variable": (
            "_convert_to_tensor",
            "_deferred_initialize",
            "_dtype",
            "_initialize",
            "_initialize_with_initializer",
            "_value",
        ),
    },
    features={"MultiOptimizer": "keras.optimizers.MultiOptimizer"},
    parameters={
        "BatchNormalization._moments": ("self", "inputs", "mask"),
        "Embedding.call": ("self", "inputs"),
        "H5IOStore.__getitem__": ("self", "key"),
        "H5IOStore.__setitem__": ("self", "key", "value"),
        "LossScaleOptimizer.apply": ("self", "grads", "trainable_variables"),
        "Optimizer.apply": ("self", "grads", "trainable_variables"),
        "Optimizer.build": ("self", "variables"),
        "Optimizer.save_own_variables": ("self", "store"),
        "TensorFlowTrainer._maybe_symbolic_build": ("self", "iterator", "data_batch"),
        "TensorFlowTrainer.make_test_function": ("self", "force"),
        "TensorFlowTrainer.make_train_function": ("self", "force"),
        "Variable._initialize": ("self", "value"),
        "Variable._initialize_with_initializer": ("self", "initializer"),
        "saving_lib.is_memory_sufficient": ("model",),
    },
)
PACKAGES = {"tensorflow": TENSORFLOW, "keras": KERAS}
