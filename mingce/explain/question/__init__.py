"""What a question asks: what it is about, what is wanted of it, which numbers and tokens it names."""
