"""What a question becomes: its steps, their words, and what the replies mean. No I/O, no clock, no chance."""
