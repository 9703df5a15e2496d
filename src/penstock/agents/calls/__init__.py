"""Calls of a process that makes many: pooled connections to containers whose answers nobody trusts."""
