"""What users' consumers import: assignors and the weights they assign by."""
