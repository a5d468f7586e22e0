"""The translator with an LLM: its typed goals are the goals, each slot held against the text."""

from intent.llm.extraction import extract as extract
from intent.llm.extraction import translator as translator
from intent.llm.following import follow as follow
