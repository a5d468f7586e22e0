"""Times that people say.

Clock times, days, dates, zones and durations, read from folded text and spoken again.
"""

from intent.times.reader import PROBLEMS as PROBLEMS
from intent.times.reader import TimeMatch as TimeMatch
from intent.times.reader import find as find
from intent.times.reader import spoken as spoken
