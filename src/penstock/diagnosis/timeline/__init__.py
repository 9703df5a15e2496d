"""A run as a picture: bars that tell where the time of each task went; on a terminal, as a page, as SVG."""
