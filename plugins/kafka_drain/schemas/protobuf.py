"""Decode Protobuf with the text of a schema, as a registry has it.

Needs the extra `protobuf`: Google's own compiler makes descriptors of the text, which no library
for Python does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from kafka_drain.errors import ConfigError, MachineError

_MAIN = "kafka_drain_schema.proto"


def protobuf_reader(
    text: str, references: Mapping[str, str]
) -> Callable[[bytes, bytes | None], dict[str, Any]]:
    """Return a function that decodes messages of a schema.

    It takes the bytes after the id, and those after the GUID in a header, which then have the
    message's indexes; None if the indexes come first in the bytes. It raises ValueError when the
    bytes aren't such a message.

    Args:
        text: The schema, in Protobuf's own language.
        references: The texts of imported files, by name.

    Raises:
        ConfigError: When it isn't such a schema.
        MachineError: When the extra isn't installed.
    """
    descriptors = _compiled(text, references)
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    top = pool.FindFileByName(_MAIN)
    classes: dict[tuple[int, ...], Any] = {}

    def read(payload: bytes, in_header: bytes | None) -> dict[str, Any]:
        indexes, after = message_indexes(payload if in_header is None else in_header)
        if indexes not in classes:
            classes[indexes] = message_factory.GetMessageClass(_message(top, indexes))
        try:
            found = classes[indexes].FromString(payload[after:] if in_header is None else payload)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        # A producer doesn't write 0, false, "" and an enum's first name, though they are there.
        decoded: dict[str, Any] = MessageToDict(
            found,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            # An `Any` names a type of the schema.
            descriptor_pool=pool,
        )
        return {found.DESCRIPTOR.full_name: decoded}

    return read


def message_indexes(content: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of the message in its schema, and the number of bytes that it took.

    The number of indexes, then each one, as zigzag varints; a single zero stands for the first
    message.

    Raises:
        ValueError: When these bytes are no indexes.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(content) or shift > 63:
                raise ValueError("no message indexes")
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)

    count = varint()
    if not 0 <= count <= len(content):
        raise ValueError(f"{count} message indexes")
    return tuple(varint() for _ in range(count)) or (0,), at


def _message(file: Any, indexes: tuple[int, ...]) -> Any:
    """Return the descriptor of a message, from the outermost to the innermost index."""
    # By order in the file: `message_types_by_name` keeps it.
    found = list(file.message_types_by_name.values())
    message = None
    for index in indexes:
        if not 0 <= index < len(found):
            raise ValueError(f"the schema has no message with indexes {list(indexes)}")
        message = found[index]
        found = list(message.nested_types)
    return message


def _compiled(text: str, references: Mapping[str, str]) -> Any:
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from grpc_tools import protoc
    except ImportError as error:
        raise MachineError(
            "decoding Protobuf needs the extra protobuf: install kafka-drain[protobuf]"
        ) from error
    standard = Path(protoc.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        for name, content in {**references, _MAIN: text}.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ConfigError(f"a Protobuf schema imports {name!r}, which is no file's name")
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        written = Path(folder, "kafka_drain_descriptors")
        command = ["protoc", f"-I{folder}", f"-I{standard}", "--include_imports"]
        if protoc.main([*command, f"--descriptor_set_out={written}", _MAIN]):
            shown = " ".join(text.split())[:200]
            raise ConfigError(
                f"a schema isn't Protobuf, or imports a file that is missing: {shown}"
            )
        return FileDescriptorSet.FromString(written.read_bytes())
