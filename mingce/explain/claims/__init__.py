"""Check what a dialogue claims: find its numbers, work out what they should be, tell the wrong ones.

find        reading (plain) → chains (tokens, expressions), tables → finding, prose → facts
work out    context (names, digits) → inputs → expected (truth)
judge       series (fitting, diagnosis), whitening, equations (sums, rounding), counts, words → verdicts
tell        wording, formulas; all together: check
"""
