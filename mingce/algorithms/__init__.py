"""The arithmetic of credit: pure functions on tensors, each with a float64 twin in `reference`."""
