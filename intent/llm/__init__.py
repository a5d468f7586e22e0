"""The translator with an LLM, which only extracts: its answer is held against the text, and the rules say what it means."""

from intent.llm.extraction import extract as extract
from intent.llm.extraction import translator as translator
