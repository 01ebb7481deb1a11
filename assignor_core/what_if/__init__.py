"""What is assumed to change in recorded hours, figures of their replay, and predictions beside what came. Pure."""
