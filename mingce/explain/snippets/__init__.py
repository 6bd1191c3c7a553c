"""Pasted code and formulas: read, recognised line by line, run on the example by a safe evaluator, and explained."""

from mingce.explain.snippets.again import line_again as line_again
from mingce.explain.snippets.answering import bugs_of as bugs_of
from mingce.explain.snippets.answering import has_bug as has_bug
from mingce.explain.snippets.answering import is_explained as is_explained
from mingce.explain.snippets.answering import snippet_answer as snippet_answer
from mingce.explain.snippets.reading import Snippet as Snippet
from mingce.explain.snippets.reading import read_snippet as read_snippet
