"""Hugging Face directories to runs and back."""

from regard.interop.huggingface.conversion import export_run, import_directory

__all__ = ["export_run", "import_directory"]
