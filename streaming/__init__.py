"""The shell round the core: the four roles, the commands, and the only places that touch Kafka, Spark and Delta."""
