"""The request that lets a task forget a function is one of TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

from tfps.recovery.probing.collected_functions import encode_removal


def _enqueue_request() -> Any:
    """`EnqueueRequest` as far as it is used, by the numbers of TensorFlow's eager_service.proto."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="eager_service.proto", package="test")
    for name, *fields in (
        ("RemoveFunctionOp", ("function_name", 1, kinds.TYPE_STRING, "")),
        ("QueueItem", ("remove_function", 8, kinds.TYPE_MESSAGE, ".test.RemoveFunctionOp")),
        (
            "EnqueueRequest",
            ("context_id", 1, kinds.TYPE_FIXED64, ""),
            ("queue", 3, kinds.TYPE_MESSAGE, ".test.QueueItem"),
        ),
    ):
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
            if of:
                message.field[-1].type_name = of
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.EnqueueRequest"))


@pytest.mark.parametrize("name", ["f", "__inference_" + 30_000 * "x"])
def test_a_removal_can_be_read(name: str) -> None:
    request = _enqueue_request().FromString(encode_removal(name, context_id=2**64 - 3))
    assert request.context_id == 2**64 - 3
    assert request.queue.remove_function.function_name == name
