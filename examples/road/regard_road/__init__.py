"""Forecasts of several agents on a road: a model and a task that regard finds by their entry points."""
