"""The translator without an LLM: words to tokens, clauses and goals, in English, Chinese and the mix of both."""

from intent.rules.reader import read as read
