"""The pipeline key `encryption`: which master key opens the data files. Opens nothing."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

KmsName = Literal["file", "aws", "vault"]
KMS_NAMES: tuple[KmsName, ...] = get_args(KmsName)


class Encryption(BaseModel):
    """Parquet's own encryption of keys, values, headers and all that is derived from them.

    Attributes:
        kms: Place of the master key: `file`, `aws` (AWS KMS) or `vault` (Vault's transit engine).
        key: The master key's name: in the file; an id, ARN or alias; or that of the transit key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kms: KmsName
    key: Annotated[str, Field(min_length=1, max_length=2048)]
