"""What moved when and why: of a topic, a partition, a broker, or of all."""

from streaming.serve.api.load import Body, Values
from streaming.serve.api.looks import Looks
from streaming.serve.api.pages import LIMIT_DEFAULT, pack, page, unknown_cursor, unpack
from streaming.serve.api.problems import Problem
from streaming.views.movements import Wanted, read_past_moves
from streaming.views.past_rows import Before


def past_moves(looks: Looks, given: Values) -> Body:
    """Movements of plans that executions took up, with what became of the execution and why it was."""
    wanted = Wanted(given.get("topic"), given.get("partition"), given.get("broker"))
    if wanted.partition is not None and wanted.topic is None:
        raise Problem(400, "topic: is needed with partition")
    cursor = unpack(given.get("cursor"), int, str, int)
    if cursor and min(cursor[0], cursor[2]) < 0:
        raise unknown_cursor()
    after = (cursor[0], cursor[1], cursor[2]) if cursor else None
    limit = given.get("limit", LIMIT_DEFAULT)
    before = Before(given.get("from"), given.get("to"))
    with looks.tables() as reader:
        found = read_past_moves(reader, looks.kafka_cluster, wanted, before, after, rows_max=limit)
    body = page(found.rows, limit, lambda item, _number: [item["approved_ms"], item["execution_id"], item["sequence"]])
    if body["next_cursor"] is None and found.looked_to is not None:
        body["next_cursor"] = pack(list(found.looked_to))
    return body
