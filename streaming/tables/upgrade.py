"""What tables of an earlier release lack; `create_table` gives it to them."""

from deltalake.exceptions import DeltaError

from streaming.contract import TABLES
from streaming.errors import TableUnavailable
from streaming.tables.definitions import Differences, differences, other_types
from streaming.tables.opening import first_line, open_table, table_uri


def lacking(root: str, name: str) -> Differences | None:
    """What the table lacks of this release's definition; None where the table isn't there. Nothing is written.

    Raises TableUnavailable, also where nothing can bring it up to date: its format is newer, or a column has another
    type.
    """
    delta = open_table(root, name)
    if delta is None:
        return None
    try:
        found = differences(delta, table_uri(root, name), TABLES[name])
        others = other_types(delta, TABLES[name])
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} can't be read: {first_line(error)}") from None
    if others:
        raise TableUnavailable(f"table {name}: columns of another type than this release's: {', '.join(others)}")
    return found
