"""What kafka-python's answers and errors mean: brokers that are alive, refusals, requests without an answer."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, BrokerResponseError, KafkaError, NoError, RequestTimedOutError, for_code

from streaming.errors import ClusterRequestFailed, ClusterUnreachable


def brokers_alive(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Rack by broker; raises KafkaError."""
    return racks_of(admin.describe_cluster()["brokers"])


def racks_of(brokers: Iterable[Mapping[str, Any]]) -> dict[int, str | None]:
    """Rack by broker of those that are alive, lowest id first; `brokers` as DescribeCluster lists them."""
    alive = {row["broker_id"]: row["rack"] or None for row in brokers if not row.get("is_fenced", False)}
    return dict(sorted(alive.items()))


def kafka_cluster_id(admin: KafkaAdminClient) -> str:
    """Kafka's own id of the cluster that answers; raises KafkaError."""
    return str(admin.describe_cluster()["cluster_id"])


def is_unanswered(error: Exception | type[Exception]) -> bool:
    """Whether no broker answered, so that nobody knows whether the request was carried out.

    RequestTimedOut counts: a broker answers so if its own wait has ended, the client raises it if its wait has.
    """
    kind = error if isinstance(error, type) else type(error)
    return not issubclass(kind, BrokerResponseError) or issubclass(kind, RequestTimedOutError)


def unanswered_in(answer: str | None) -> bool:
    """Whether one part of an answer, where the client puts Kafka's error into words, shows that no broker answered."""
    return answer is not None and RequestTimedOutError.__name__ in answer


@contextmanager
def translated(request: str, *, role: str) -> Iterator[None]:
    """Errors of the client as ours: ClusterUnreachable without an answer, ClusterRequestFailed if Kafka refuses.

    `request` is what was asked for, in words; `role` is the one whose rights the message points to.
    """
    try:
        yield
    except (KafkaError, OSError) as error:
        raise failure(request, type(error), role=role) from error


def failure(
    request: str, error: type[Exception], message: str | None = None, *, role: str
) -> ClusterUnreachable | ClusterRequestFailed:
    """An error of the client, or of one part of an answer, as ours; `message` is Kafka's, if it sent one."""
    if is_unanswered(error):
        return ClusterUnreachable(f"no answer when asked to {request} ({error.__name__})")
    detail = " ".join((message or "").split()).rstrip(".")
    rights = f"; `rebalancer check --role {role}` names the rights it needs"
    hint = rights if issubclass(error, AuthorizationError) else ""
    reason = f"{error.__name__}{detail and f' ({detail})'}"
    return ClusterRequestFailed(f"the cluster refused to {request}: {reason}{hint}", kafka_error=error.__name__)


def raise_error(answer: Any) -> None:
    """Raise the error that an answer of kafka-python's, or a part of it, names."""
    error = for_code(answer.error_code)
    if error is not NoError:
        message = getattr(answer, "error_message", None)
        raise error if message is None else error(message)
