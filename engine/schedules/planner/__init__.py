"""Planner: decisions on due windows. Pure."""

from engine.schedules.planner.decisions import *
from engine.schedules.planner.overlap import *
from engine.schedules.planner.planner import *
