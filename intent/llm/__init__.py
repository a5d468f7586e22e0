"""The translator with an LLM: its typed goals are the goals, each slot held against the text."""

from intent.llm.following import extract as extract
from intent.llm.following import follow as follow
from intent.llm.following import translator as translator
