"""The translator without an LLM.

Words to tokens, clauses and goals, in English, Chinese and the mix of both.
"""

from intent.rules.reader import read as read
