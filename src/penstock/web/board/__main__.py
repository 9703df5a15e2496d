"""`python -P -m penstock.web.board`, as `serve` starts it."""

from penstock.web.board.program import main

if __name__ == "__main__":
    main()
