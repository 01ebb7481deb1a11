"""What others may rely on: records of the topics and tables, their fields, types, units and comments."""
