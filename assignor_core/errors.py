"""The errors of the core, split by what the caller can do about them.

    CoreError               anything this package raises on purpose
      InputError            fix the input: a value is outside what is allowed; nothing was changed
        InvalidPartitions         partition counts Kafka refuses
        InvalidReplicationFactor  more replicas than brokers, or none
        InvalidRackInformation    only some brokers have a rack
        InvalidGroup              a consumer group no assignor can serve
        UnknownStrategy           no assignor has that name
        MalformedBytes            bytes that are not what the protocol says
      PlanTampered          the plan's content is not what its id says; make a new plan
      IllegalTransition     an event that can't happen in this state; nothing was changed
      NothingToPlanOn       too little is known of the load; wait for more windows
        LoadsDisagree             brokers and partitions report different loads; look for the wrong samples

Messages are one line and name the thing, the value found and the value allowed.
"""


class CoreError(Exception):
    """Root of the tree."""


class InputError(CoreError):
    """A value is outside what is allowed; the message names thing, value found and value allowed."""


class PlanTampered(CoreError):
    """The content of a plan does not hash to its id."""


class IllegalTransition(CoreError):
    """A state machine got an event that can't happen in its state; it is as it was."""


class NothingToPlanOn(CoreError):
    """There is no closed window to plan on, or too little of the load is known."""


class LoadsDisagree(NothingToPlanOn):
    """A broker reports a load that its replicas don't add up to; the message names it."""


class InvalidPartitions(InputError):
    """A number of partitions that is not allowed."""


class InvalidReplicationFactor(InputError):
    """Replicas can't be placed on as many distinct brokers."""


class InvalidRackInformation(InputError):
    """Some brokers have a rack and some have none."""


class InvalidGroup(InputError):
    """Members, topics, owned partitions, racks or weights that don't fit together."""


class UnknownStrategy(InputError):
    """The strategy's name is none of ours."""


class MalformedBytes(InputError):
    """Bytes from the wire that can't be read; the message names the field."""
