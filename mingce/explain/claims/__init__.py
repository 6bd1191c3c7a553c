"""Check what a text claims in numbers: find them, work out what they should be, tell the wrong ones.

read        reading (plain) → statements; chains (tokens, expressions) and tables inside them
quantities  extraction (names, prose): which list, number or sum is about what
expected    context → expected (truth): what a quantity should be by what the text gives around it
verdict     lists, singles (sums), whitening, counts, misconceptions → verdicts (formulas); all together: check
"""
