"""The order in which Kafka's Java code sorts strings."""


def utf16_order(text: str) -> bytes:
    """Sort key of Java's string order: UTF-16 code units, which differs from code points beyond the basic plane.

    >>> "\\uffff" < "\\U00010000", utf16_order("\\uffff") < utf16_order("\\U00010000")
    (True, False)
    """
    return text.encode("utf-16-be", "surrogatepass")
