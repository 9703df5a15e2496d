"""Penstock: a dispatcher for AI-agent work."""
