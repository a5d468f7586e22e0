"""Goals in words: the sentence an operator confirms, in both languages, which the rules read back to the same goals."""

from intent.readback.clauses import in_words as in_words
from intent.readback.clauses import render as render
from intent.readback.words import Words as Words
from intent.readback.words import name as name
from intent.readback.words import plain as plain
