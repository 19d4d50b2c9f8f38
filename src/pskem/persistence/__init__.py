"""Model files that hold data and nothing that could run: see ``docs/model-files.md``."""

from pskem.persistence.container import Header, ModelFileError, load, read_header, save

__all__ = ["Header", "ModelFileError", "load", "read_header", "save"]
