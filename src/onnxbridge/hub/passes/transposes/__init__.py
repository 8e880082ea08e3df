"""Transposes moved through a graph and cancelled."""
