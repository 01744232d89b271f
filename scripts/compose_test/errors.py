"""Why a run of the stack failed.

ComposeTestError
├── CommandError           a command failed or took too long
├── EngineError            no Docker engine responds, and none could be started
├── ComposeError           no Docker Compose that is new enough
├── BaseImageError         the Dockerfile's base image isn't available
├── PortError              a port that the stack publishes is in use
├── StackError             a service didn't become healthy, or left something behind
├── ApiError               Airflow's REST API refused a request
├── DagRunError            a DAG run failed or didn't end in time
└── ContentError           data that was read doesn't match, or isn't where it should be
"""

from __future__ import annotations

__all__ = [
    "ApiError",
    "BaseImageError",
    "CommandError",
    "ComposeError",
    "ComposeTestError",
    "ContentError",
    "DagRunError",
    "EngineError",
    "PortError",
    "StackError",
]


class ComposeTestError(Exception):
    """Base class of all errors that end a run."""


class CommandError(ComposeTestError):
    """Raised when a command failed or took too long."""


class EngineError(ComposeTestError):
    """Raised when no Docker engine responds and none could be started."""


class ComposeError(ComposeTestError):
    """Raised when no Docker Compose that is new enough was found or unpacked."""


class BaseImageError(ComposeTestError):
    """Raised when the Dockerfile's base image isn't available."""


class PortError(ComposeTestError):
    """Raised when a port that the stack publishes is in use."""


class StackError(ComposeTestError):
    """Raised when a service didn't become healthy, or parts of the stack are left over."""


class ApiError(ComposeTestError):
    """Raised when Airflow's REST API refused a request."""


class DagRunError(ComposeTestError):
    """Raised when a DAG run failed, or didn't end in time."""


class ContentError(ComposeTestError):
    """Raised when data that was read doesn't match, or isn't where it should be."""
