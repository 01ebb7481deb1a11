"""Small files of the checkpoints: in a folder, or on an object store, which is asked without a JVM.

Spark writes its own with rename or, on S3, copy. This module knows names and texts, not what they mean.
"""

import os
from pathlib import Path
from typing import Any, Self

from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from streaming.errors import TableUnavailable
from streaming.tables import first_line
from streaming.tables.object_stores import storage_options
from streaming.tables.places import local_folder


class CheckpointFiles:
    """Files below a folder, or below a URI of an object store. Names are relative, with slashes."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        self._folder = local_folder(self.place)

    def below(self, name: str) -> Self:
        """Returns the files of the folder `name` below this place."""
        return type(self)(f"{self.place}/{name}")

    def read(self, name: str) -> str:
        """The file's text. Raises FileNotFoundError, OSError of a folder, TableUnavailable of an object store."""
        if self._folder is not None:
            return (self._folder / name).read_text(encoding="utf-8")
        try:
            with self._store().open_input_stream(name) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise TableUnavailable(f"{self.place}/{name} can't be read: {first_line(error)}") from None

    def write(self, name: str, text: str) -> None:
        """Put it there as a whole: a reader sees the old text or the new one. Raises as `read` does."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh = self._folder / f"{name}.new"
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self._folder / name)
            return
        try:
            # Arrow's stream on it would hand over buffers, which delta-rs refuses.
            files: Any = DeltaFileSystemHandler(self.place, storage_options(self.place))  # its stub lacks close
            stream = files.open_output_stream(name)
            stream.write(text.encode())
            stream.close()
        except (DeltaError, OSError) as error:
            raise TableUnavailable(f"{self.place}/{name} can't be written: {first_line(error)}") from None

    def numbers(self, folder: str) -> list[int]:
        """Names of files in `folder` that are whole numbers, such as batches; raises as `read` does."""
        if self._folder is not None:
            names = [path.name for path in (self._folder / folder).glob("[0-9]*")]
        else:
            try:
                found = self._store().get_file_info(FileSelector(folder, allow_not_found=True))
            except (DeltaError, OSError) as error:
                raise TableUnavailable(f"{self.place}/{folder} can't be listed: {first_line(error)}") from None
            names = [Path(info.path).name for info in found]
        return [int(name) for name in names if name.isdigit()]

    def _store(self) -> PyFileSystem:
        return PyFileSystem(DeltaStorageHandler(self.place, storage_options(self.place)))
