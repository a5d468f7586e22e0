"""Goals as the sentence that an operator confirms, in English and Chinese.

The rules read it back to the same goals.
"""

from intent.readback.clauses import Words as Words
from intent.readback.clauses import in_words as in_words
from intent.readback.clauses import name as name
from intent.readback.clauses import plain as plain
from intent.readback.clauses import render as render
