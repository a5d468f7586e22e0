"""The one typed form of every document that crosses the border of the service.

Leaves: no server, database or engine.

Who takes many of them takes them from here: ``from service import documents as docs``.
"""
# ruff: noqa: F403 - every document is to be had from here

from service.documents.access import *
from service.documents.forms import *
from service.documents.operations import *
from service.documents.plans import *
from service.documents.problems import *
from service.documents.promises import *
from service.documents.state import *
