"""The pure core: events and the time go in, decisions come out. No I/O, no clock, no chance inside."""
