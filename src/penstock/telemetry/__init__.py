"""Figures for the outside, folded from what the dispatcher decides."""
